package runfile

import (
	"path/filepath"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/policy"
)

// databaseFile is where a run keeps its store, in its output folder.
const databaseFile = "agl.db"

func (d *draft) tune(to **SFT) yamlfile.Value {
	return yamlfile.Via(func(f *SFT) yamlfile.Value {
		key, from, c := yamlfile.Key, yamlfile.Min, &f.Config
		positive := func(v *float64) yamlfile.Value { return yamlfile.Number(v, yamlfile.Above(0)) }
		count := func(v *int) yamlfile.Value { return yamlfile.Integer(v, from(1)) }
		keys := []yamlfile.Field{
			key("from", "Rollouts that are there already, or the output folder alone of the run that has made them; without it the run makes its own.", d.from(&f.From)),
			key("min_reward", "Learns from rollouts with at least this reward.", yamlfile.Via(func(v *float64) yamlfile.Value { return yamlfile.Number(v, from(-1e9)) },
				func(v float64) { c.Filter.MinReward = agl.Some(v) })),
			key("best", "Learns from so many rollouts of each task, those with the highest rewards; all when it is not here. Without min_reward, tasks whose rollouts all have one reward, and rollouts whose agent failed, teach nothing.", count(&c.Filter.Best)),
			key("rounds", "How often rollouts are made with what has been learned so far.", count(&c.Rounds)).Default(1),
			key("tasks", "Tasks that a round draws; all of data.train when it is not here.", count(&c.Tasks)),
			key("samples", "Rollouts of each task in a round.", count(&c.Samples)).Default(4),
			key("steps", "Optimizer steps of a round.", count(&c.Steps)).Required(),
			key("batch", "Sequences of a step.", count(&c.Batch)).Default(32),
		}
		keys = append(keys, rate(&c.Schedule, "0.001 when neither is here.")...)
		keys = append(keys,
			key("pass_reward", "The reward from which on a validation task counts as passed.", positive(&c.PassReward)).Default(1),
			key("form", "The member of tasks that names their form, for pass rates by form.",
				yamlfile.Via(yamlfile.Text, func(name string) { c.Form = memberOf(name) })),
			key("val_n", "Tries only so many validation tasks, before the first step and after each round; all when it is not here.", count(&c.Validation.N)),
			key("checkpoint_every", "Steps between checkpoints of a run with from; each round ends with one.", count(&c.CheckpointEvery)).Default(200),
		)
		return yamlfile.Mapping(keys...).Check(oneRate).Check(func(s *yamlfile.Scope) {
			for _, name := range []string{"rounds", "tasks", "samples"} {
				if s.Given("from") && s.Given(name) {
					s.Failf(name, "given together with from, but then no rollouts are made")
				}
			}
			if !s.Given("from") && !s.Given("min_reward") && !s.Given("best") {
				s.Failf("", "neither min_reward nor best is given, but no model gets better by all that it does itself")
			}
			if s.Clean() {
				checkSFT(s, f)
			}
		})
	}, func(f SFT) { *to = &f })
}

// from declares where rollouts are kept.
func (d *draft) from(to **Store) yamlfile.Value {
	return yamlfile.Via(func(from *Store) yamlfile.Value {
		key := yamlfile.Key
		run := yamlfile.Via(yamlfile.Folder, func(folder string) {
			from.Database = "sqlite:" + filepath.Join(folder, databaseFile)
		})
		return yamlfile.Short(run, yamlfile.Mapping(
			key("db", "Their database, as `agl store --db` has it.", yamlfile.Text(&from.Database)),
			key("url", "The URL of the store server that has them.", yamlfile.URL(&from.URL)),
			key("token", "Its token; that in AGL_TOKEN when it is not here.", yamlfile.Secret(&from.Token)),
		).Check(func(s *yamlfile.Scope) {
			switch {
			case s.Given("db") && s.Given("url"):
				s.Failf("db", "given together with url, must be one of them")
			case !s.Given("db") && !s.Given("url"):
				s.Failf("", "neither db nor url is given, must be one of them")
			case s.Given("db"):
				d.database(s, from)
			}
		}))
	}, func(from Store) { *to = &from })
}

// checkSFT lets the algorithm judge its settings, with an engine and a store in the
// place of the run's.
func checkSFT(s *yamlfile.Scope, f *SFT) {
	c := f.Config
	service, err := policy.NewService(policy.Config{Vocab: 2})
	if err == nil {
		c.Service = service
		if f.From != nil {
			c.From = sft.Stored(agl.UnimplementedStore{})
		}
		_, err = sft.New(c)
	}
	s.Fail(err)
}
