package algorithms

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/markdown"
	"github.com/agl-go/agl/trainer/plot"
)

// APO is package apo with its settings in a run file. The run sets RunConfig and
// the models.
type APO struct {
	apo.Config
	// Gradient and Edit are the models that critique and rewrite prompts. A model
	// without a BaseURL is one of the run's proxy. APIKey is env:NAME. Edit nil means
	// Gradient.
	Gradient apo.EndpointConfig
	Edit     *apo.EndpointConfig

	// Release is how a live run tries each edit, and Redaction says which sessions it may learn from; nil lets all pass.
	Release   release.Proposal
	Redaction *Redaction
}

func apoKeys(dir string) (yamlfile.Value, Algorithm) {
	a := &APO{}
	key, count, c := yamlfile.Key, keys.Count, &a.Config
	return yamlfile.Mapping(
		key("gradient_model", "The model that critiques prompts, or the name alone of a model of the run's proxy.", critic(&a.Gradient, &c.GradientPrice)).Required(),
		key("edit_model", "The model that rewrites them; by default gradient_model.", yamlfile.Via(func(e *apo.EndpointConfig) yamlfile.Value {
			return critic(e, &c.EditPrice)
		}, func(e apo.EndpointConfig) { a.Edit = &e })),
		key("budget", "Ends the search when it is spent on calls of these two models. Without a key there is no limit.", yamlfile.Mapping(
			key("tokens", "Tokens of prompts and replies.", yamlfile.Integer(&c.Budget.Tokens)),
			key("dollars", "Dollars, by the prices of the models.", yamlfile.Number(&c.Budget.Dollars)),
		)),
		key("temperature", "Temperature of both models.", yamlfile.Via(func(v *float64) yamlfile.Value { return yamlfile.Number(v) },
			func(v float64) { c.Temperature = agl.Some(v) })).Default(1),
		key("attempts", "Requests for one critique or one usable edit.", count(&c.Attempts)).Default(3),
		key("beam_width", "Candidates that survive a round.", count(&c.BeamWidth)).Default(4),
		key("branch_factor", "Edits of each of them.", count(&c.BranchFactor)).Default(4),
		key("rounds", "Number of rounds; with `live` it goes on by default until it is stopped.", count(&c.Rounds)).Default(apo.DefaultRounds),
		key("gradient_batch", "Training tasks, or live sessions, that a critique sees.", count(&c.GradientBatch)).Default(4),
		key("val_batch", "Validation tasks on which the candidates of a round are compared.", count(&c.ValBatch)).Default(16),
		key("skip_initial_validation", "Does not run the validation tasks with the first prompts before the first round.", yamlfile.Bool(&c.SkipInitialValidation)).Default(false),
		key("final_samples", "Fresh rollouts of each validation task in the final comparison.", count(&c.FinalSamples)).Default(1),
		key("level", "Coverage of intervals.", yamlfile.Number(&c.Level, yamlfile.Above(0), yamlfile.Below(1))).Default(0.95),
		key("resamples", "Bootstrap samples of an interval.", yamlfile.Integer(&c.Resamples, yamlfile.Min(100))).Default(2000),
		key("critique_prompts", "Files of requests for a critique, Go templates; agl has its own.", texts(&c.CritiquePrompts)),
		key("edit_prompts", "Files of requests for an edit.", texts(&c.EditPrompts)),
		key("experiment_size", "Limit of the messages of one rollout in a request.", yamlfile.Size(&c.ExperimentBytes)).Default("8KiB"),
		key("concurrency", "Edits that are made, and candidates that are evaluated, at the same time.", count(&c.Concurrency)).Default(8),
		key("batch_timeout", "Limits the wait for the rollouts of a candidate.", yamlfile.Duration(&c.BatchTimeout)).Default("1h"),
		key("live", "Learns from rollouts that others start, such as the sessions of a live service (`proxy.sessions`), for as long as it runs. Each edit is tried on a share of the sessions, as a release whose gates decide.",
			a.liveKeys(dir)),
	).Check(func(s *yamlfile.Scope) {
		for _, name := range []string{"beam_width", "branch_factor", "val_batch", "skip_initial_validation", "final_samples", "level", "resamples"} {
			if s.Given("live") && s.Given(name) {
				s.Failf(name, "given together with live, where a release decides and not a search over validation tasks")
			}
		}
		if s.Clean() {
			s.Fail(a.check())
		}
	}), a
}

// liveKeys declares the settings of a live run.
func (a *APO) liveKeys(dir string) yamlfile.Value {
	var metadata []yamlfile.Entry[string]
	return yamlfile.Via(func(l *apo.Live) yamlfile.Value {
		return yamlfile.Mapping(
			yamlfile.Key("sessions", "Sessions with a reward that a round waits for, at least `gradient_batch`; it takes the newest, and a critique sees `gradient_batch` of them, from the worst to the best.", keys.Count(&l.Sessions)).Default(16),
			metadataKey(&metadata),
			perUserKey(&l.PerUser),
			redactionKey(dir, &a.Redaction),
			yamlfile.Key("release", "How each edit is tried.", releaseKeys(&a.Release)),
		).Check(func(s *yamlfile.Scope) {
			l.Filter = withMetadata(metadata)
			if slices.ContainsFunc(a.Release.Gates.Guards, func(g release.Guard) bool { return g.Metric == release.MetricKL }) {
				s.Failf("release.guards", "the guard kl compares weights, and these are prompts; leave it out")
			}
		})
	}, func(l apo.Live) { a.Live = &l })
}

// critic declares a model, or its name alone.
func critic(e *apo.EndpointConfig, price *apo.Price) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Short(yamlfile.Text(&e.Model), yamlfile.Mapping(
		key("model", "The model to request.", yamlfile.Text(&e.Model)).Required(),
		key("base_url", "The URL of an OpenAI-compatible API, usually ending in /v1; by default the run's proxy.", yamlfile.URL(&e.BaseURL)),
		key("api_key", "The key of the API.", yamlfile.Secret(&e.APIKey)),
		key("requests_per_second", "Rate limit of the requests; 0 is none.", yamlfile.Number(&e.RequestsPerSecond)).Default(0),
		key("timeout", "Timeout of one request.", yamlfile.Duration(&e.Timeout)).Default("5m"),
		key("attempts", "Attempts of a request that gets no answer.", keys.Count(&e.MaxAttempts)).Default(6),
		key("send_seed", "Sends a seed, which not every API accepts.", yamlfile.Bool(&e.SendSeed)).Default(false),
		key("price", "Dollars per million tokens.", yamlfile.Mapping(
			key("prompt", "Price of prompts.", yamlfile.Number(&price.Prompt)).Default(0),
			key("completion", "Price of replies.", yamlfile.Number(&price.Completion)).Default(0),
		)),
	)).Check(func(s *yamlfile.Scope) {
		switch {
		case s.Clean() && e.Model == "":
			s.Failf("", "the name of the model is empty")
		case e.BaseURL == "" && e.APIKey != "":
			s.Failf("api_key", "given without base_url, but the run's proxy needs none")
		}
	})
}

// texts declares a list of files, whose contents are the values.
func texts(to *[]string) yamlfile.Value {
	return yamlfile.NonEmptyList(to, func(text *string) yamlfile.Value {
		return yamlfile.Via(yamlfile.Contents, func(f yamlfile.TextFile) { *text = f.Text })
	})
}

// check lets the algorithm check its settings. The port of the run's proxy is not
// known yet.
func (a *APO) check() error {
	_, err := a.build(func(m Model) (Model, error) {
		m.BaseURL = cmp.Or(m.BaseURL, "http://127.0.0.1")
		return m, nil
	}, nil, algorithm.RunConfig{})
	return err
}

// build makes the algorithm and its models.
func (a *APO) build(resolve func(Model) (Model, error), trust *tls.Config, run algorithm.RunConfig) (*apo.APO, error) {
	c := a.Config
	c.RunConfig = run
	if c.Live != nil && a.Redaction != nil {
		live := *c.Live
		live.Allow, c.Live = a.Redaction.allow, &live
	}
	models := a.Needs().Models
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust}}
	for i, to := range []*apo.Model{&c.GradientModel, &c.EditModel}[:len(models)] {
		m, err := resolve(models[i])
		if err != nil {
			return nil, err
		}
		endpoint := a.Gradient
		if i > 0 {
			endpoint = *a.Edit
		}
		endpoint.BaseURL, endpoint.APIKey, endpoint.HTTPClient = m.BaseURL, m.APIKey, client
		if *to, err = apo.NewEndpoint(endpoint); err != nil {
			return nil, err
		}
	}
	return apo.New(c)
}

// Name implements [Algorithm].
func (*APO) Name() string { return "apo" }

// Describe implements [Algorithm].
func (a *APO) Describe() string {
	if a.rounds() == 0 {
		return "until it is stopped"
	}
	return display.Plural(a.rounds(), "round")
}

// rounds returns the number of rounds; 0 for a run without an end.
func (a *APO) rounds() int {
	if a.Live != nil {
		return a.Rounds
	}
	return cmp.Or(a.Rounds, apo.DefaultRounds)
}

// Needs implements [Algorithm].
func (a *APO) Needs() Needs {
	model := func(key string, e *apo.EndpointConfig) Model {
		return Model{Key: "algorithm.apo." + key, Name: e.Model, BaseURL: e.BaseURL, APIKey: e.APIKey}
	}
	live := a.Live != nil
	n := Needs{Prompts: true, Validation: !live, NoTasks: live, Sessions: live, Models: []Model{model("gradient_model", &a.Gradient)}}
	if a.Edit != nil {
		n.Models = append(n.Models, model("edit_model", a.Edit))
	}
	return n
}

// New implements [Algorithm].
func (a *APO) New(p Parts) (Run, error) {
	rounds := display.Row{Label: "rounds", Total: a.rounds(), Timed: true}
	p.Display.Update(display.Update{Rows: []display.Row{rounds}})
	shown := *a
	shown.OnSeed = func(c apo.Candidate) {
		p.Display.Update(display.Update{Line: "first prompts: mean reward " + score(c), Rows: []display.Row{rounds}})
	}
	shown.OnRound = func(r apo.Round) {
		rounds.Done = r.Round
		gain, spent := gainText(r.Gain), spentText(r.Spent)
		p.Display.Update(display.Update{
			Line: fmt.Sprintf("round %2d  %s  best %s  gain %s  model calls %s", r.Round, display.Plural(r.Candidates, "new candidate"), r.Best, gain, spent),
			Rows: []display.Row{rounds, {Label: "best", Text: fmt.Sprintf("%s  gain %s", r.Best, gain)}, {Label: "model calls", Text: spent}},
		})
	}
	if a.Live != nil {
		live := *a.Live
		live.Releaser, live.OnRound = p.PromptReleaser(a.Release), showLiveRound(p.Display, rounds)
		shown.Live = &live
	}
	search, err := shown.build(p.Resolve, p.TLS, p.RunConfig)
	return &apoRun{search}, err
}

// showLiveRound shows the rounds of a live run.
func showLiveRound(d display.Display, rounds display.Row) func(apo.LiveRound) {
	return func(r apo.LiveRound) {
		line := fmt.Sprintf("round %2d  ", r.Step)
		switch {
		case r.State == "" && r.Candidate == "":
			return // the round is shown when it ends
		case r.State == "":
			line += fmt.Sprintf("%s is tried, made from %d of %d sessions with the mean reward %.3f", r.Candidate, len(r.Learned), r.Sessions, r.RewardMean)
		default:
			rounds.Done = r.Step
			line += liveState(r)
		}
		d.Update(display.Update{Line: line, Rows: []display.Row{rounds, {Label: "model calls", Text: spentText(r.Spent)}}})
	}
}

// liveState says how a round has ended.
func liveState(r apo.LiveRound) string {
	switch r.State {
	case apo.RoundPromoted:
		return r.Candidate + " is promoted: all users get it"
	case apo.RoundRolledBack:
		return r.Candidate + " is rolled back"
	case apo.RoundDropped:
		return "no candidate: " + r.Reason
	}
	return r.Candidate + " is tried"
}

// gainText writes a difference of rewards with its interval.
func gainText(d apo.Difference) string {
	if d.Pairs == 0 {
		return "none"
	}
	return fmt.Sprintf("%+.3f (%.3f to %.3f)", d.Mean, d.Low, d.High)
}

// spentText writes the cost of the models that make prompts.
func spentText(s apo.Spent) string {
	text := fmt.Sprintf("%d, %s tokens", s.Calls, display.Count(s.PromptTokens+s.CompletionTokens))
	if s.Dollars > 0 {
		text += fmt.Sprintf(", $%.4f", s.Dollars)
	}
	return text
}

// apoRun is a run of APO.
type apoRun struct{ *apo.APO }

// APOSummary is the summary of a run of APO.
type APOSummary struct {
	Prompts FoundPrompts `json:"prompts"`
}

// FoundPrompts is the result of a search.
type FoundPrompts struct {
	Improved bool              `json:"improved"`
	Finished bool              `json:"finished"`
	Gain     apo.Difference    `json:"gain"`
	Best     []apo.NamedPrompt `json:"best"`
	Rounds   int               `json:"rounds"`
	Spent    apo.Spent         `json:"spent"`
}

// Result implements [Run].
func (a *apoRun) Result() Result {
	r := a.Report()
	calls := fmt.Sprintf("%d, %s prompt and %s completion tokens", r.Spent.Calls, display.Count(r.Spent.PromptTokens), display.Count(r.Spent.CompletionTokens))
	if r.Spent.Dollars > 0 {
		calls += fmt.Sprintf(", $%.4f", r.Spent.Dollars)
	}
	var compared [2]string
	if r.Live == nil {
		compared = [2]string{r.Seed.ResourcesID, r.Best.ResourcesID}
	}
	return Result{
		Compared: compared,
		Summary:  APOSummary{FoundPrompts{r.Improved, r.Finished, r.Gain, r.Best.Prompts, len(r.Rounds), r.Spent}},
		Facts:    []Fact{{"calls that make prompts", calls}}, Report: reportAPO(r), Text: textAPO(r),
		Best: &Best{Prompts: r.Best.Resources, Improved: agl.Some(r.Improved)},
		HTML: pageAPO(r), Repeats: "repeats no model call and no batch of rollouts that had ended",
	}
}

func reportAPO(r apo.Report) string {
	var b strings.Builder
	b.WriteString("\n## Result\n\n")
	switch {
	case r.Live != nil:
		fmt.Fprintf(&b, "%s of live sessions. The prompts below are what users have, %s.\n", display.Plural(len(r.Live), "round"), stableText(r))
	case r.Improved:
		fmt.Fprintf(&b, "The prompts below are better than those of the run file: **%+.3f** reward on the validation tasks, %.0f %% interval %.3f to %.3f from %d pairs.\n",
			r.Gain.Mean, 100*r.Gain.Level, r.Gain.Low, r.Gain.High, r.Gain.Pairs)
	case r.Finished && r.Compared != "":
		fmt.Fprintf(&b, "No prompts are significantly better: the best of them gained %+.3f, interval %.3f to %.3f. The first prompts stay.\n", r.Gain.Mean, r.Gain.Low, r.Gain.High)
	case r.Finished:
		b.WriteString("No better prompts were found. The first ones stay.\n")
	default:
		b.WriteString("The search is not finished; the prompts below are the best so far, or the first ones.\n")
	}
	if r.OutOfBudget {
		b.WriteString("\nThe budget ended the search.\n")
	}
	if len(r.Rounds) > 0 {
		b.WriteString("\n| round | new candidates | best | gain | model calls | tokens |\n|---|---|---|---|---|---|\n")
		for _, one := range r.Rounds {
			fmt.Fprintf(&b, "| %d | %d | `%s` | %s | %d | %s |\n", one.Round, one.Candidates, markdown.Cell(one.Best), gainText(one.Gain),
				one.Spent.Calls, display.Count(one.Spent.PromptTokens+one.Spent.CompletionTokens))
		}
	}
	if len(r.Live) > 0 {
		b.WriteString("\n| round | sessions | mean reward | outcome of the edit | model calls | tokens |\n|---|---|---|---|---|---|\n")
		for _, one := range r.Live {
			fmt.Fprintf(&b, "| %d | %d | %.3f | %s | %d | %s |\n", one.Step, one.Sessions, one.RewardMean, markdown.Cell(liveState(one)),
				one.Spent.Calls, display.Count(one.Spent.PromptTokens+one.Spent.CompletionTokens))
		}
	}
	for _, p := range r.Best.Prompts {
		fmt.Fprintf(&b, "\n### Prompt %s\n\n%s", p.Name, markdown.Fenced(p.Prompt))
	}
	b.WriteString(reportMasked(r.Masked, r.Rollouts))
	return b.String()
}

// pageAPO shows the first and the best prompts side by side, and the tree of
// candidates with their scores and critiques.
func pageAPO(r apo.Report) string {
	var b strings.Builder
	esc := html.EscapeString
	b.WriteString("<h2>Prompts before and after</h2>\n")
	for i, p := range r.Best.Prompts {
		was := ""
		if i < len(r.Seed.Prompts) {
			was = r.Seed.Prompts[i].Prompt
		}
		fmt.Fprintf(&b, "<div class=\"pair\"><div><b>%s, before</b>, mean reward %s<pre>%s</pre></div><div><b>after</b>, mean reward %s<pre>%s</pre></div></div>\n",
			esc(p.Name), score(r.Seed), esc(was), score(r.Best), esc(p.Prompt))
	}
	children := map[string][]apo.Candidate{}
	for _, c := range r.Candidates {
		children[c.Parent] = append(children[c.Parent], c)
	}
	fmt.Fprintf(&b, "<h2>Candidates</h2>\n<p>%d, each below the one that it edits.</p>\n", len(r.Candidates))
	var walk func(parent string)
	walk = func(parent string) {
		for _, c := range children[parent] {
			best := ""
			if c.ResourcesID == r.Best.ResourcesID {
				best = " <b>the best</b>"
			}
			fmt.Fprintf(&b, "<details class=\"tree\" open><summary><code>%s</code> round %d, mean reward %s%s</summary>\n", esc(c.ResourcesID), c.Round, score(c), best)
			if c.Critique != "" {
				fmt.Fprintf(&b, "<p>Critique of the one above:</p><pre>%s</pre>\n", esc(c.Critique))
			}
			for _, p := range c.Prompts {
				if p.Name == c.Edited {
					fmt.Fprintf(&b, "<p>%s:</p><pre>%s</pre>\n", esc(p.Name), esc(p.Prompt))
				}
			}
			if c.ResourcesID != "" {
				walk(c.ResourcesID)
			}
			b.WriteString("</details>\n")
		}
	}
	walk("")
	return b.String()
}

// score is the mean reward of a candidate: on all validation tasks, or else on those
// of its last round.
func score(c apo.Candidate) string {
	switch {
	case c.Validation.Valid:
		return fmt.Sprintf("%.3f", c.Validation.V)
	case c.Score.Valid:
		return fmt.Sprintf("%.3f (tasks of one round)", c.Score.V)
	default:
		return "unknown"
	}
}

// stableText says where the prompts that users have come from.
func stableText(r apo.Report) string {
	if r.Improved {
		return "which a release has promoted"
	}
	return "the first ones"
}

func textAPO(r apo.Report) string {
	var b strings.Builder
	switch {
	case r.Live != nil:
		fmt.Fprintf(&b, "\n%s of live sessions; users have these prompts, %s\n", display.Plural(len(r.Live), "round"), stableText(r))
	case r.Improved:
		fmt.Fprintf(&b, "\nbetter prompts: %+.3f reward (%.3f to %.3f, %d pairs of rollouts)\n", r.Gain.Mean, r.Gain.Low, r.Gain.High, r.Gain.Pairs)
	case r.Finished:
		b.WriteString("\nno prompts are significantly better; the first ones stay\n")
	default:
		b.WriteString("\nthe search is not finished\n")
	}
	for _, one := range r.Best.Prompts {
		fmt.Fprintf(&b, "\n%s:\n%s\n", one.Name, one.Prompt)
	}
	fmt.Fprintf(&b, "\ncalls that make prompts: %s\n", spentText(r.Spent))
	return b.String()
}

// Curves implements [Algorithm].
func (*APO) Curves(outDir string) ([]Curve, error) {
	r, err := readReport(outDir)
	if err != nil {
		return nil, err
	}
	var scores, best, tokens []plot.Point
	byID := make(map[string]apo.Candidate, len(r.Candidates))
	for _, c := range r.Candidates {
		byID[c.ResourcesID] = c
		if c.Score.Valid {
			scores = append(scores, plot.Point{X: float64(c.Round), Y: c.Score.V})
		}
	}
	if r.Seed.Validation.Valid {
		best = append(best, plot.Point{X: 0, Y: r.Seed.Validation.V})
	}
	for _, one := range r.Rounds {
		if c := byID[one.Best]; c.Validation.Valid {
			best = append(best, plot.Point{X: float64(one.Round), Y: c.Validation.V})
		}
		tokens = append(tokens, plot.Point{X: float64(one.Round), Y: float64(one.Spent.PromptTokens + one.Spent.CompletionTokens)})
	}
	for _, one := range r.Live {
		best = append(best, plot.Point{X: float64(one.Step), Y: one.RewardMean})
		tokens = append(tokens, plot.Point{X: float64(one.Step), Y: float64(one.Spent.PromptTokens + one.Spent.CompletionTokens)})
	}
	const label = "round"
	if r.Live != nil {
		return []Curve{
			{"sessions", plot.Chart{Title: "Mean reward of the sessions that a round was made from", XLabel: label, Series: []plot.Series{{Points: best, Marks: true}}}},
			{"tokens", plot.Chart{Title: "Tokens of the calls that make prompts", XLabel: label, Series: []plot.Series{{Points: tokens, Marks: true}}}},
		}, nil
	}
	return []Curve{
		{"validation", plot.Chart{Title: "Mean reward of the best prompts on the validation tasks", XLabel: label, Series: []plot.Series{{Name: "best", Points: best, Marks: true}}}},
		{"candidates", plot.Chart{Title: "Mean reward of each candidate in its last round", XLabel: label, Series: []plot.Series{{Points: scores, Scatter: true}}}},
		{"tokens", plot.Chart{Title: "Tokens of the calls that make prompts", XLabel: label, Series: []plot.Series{{Points: tokens, Marks: true}}}},
	}, nil
}

// readReport reads report.json, which does not exist before the first round.
func readReport(outDir string) (r apo.Report, err error) {
	data, err := os.ReadFile(filepath.Join(outDir, "report.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return apo.Report{}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}
