package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
)

type releaseCommand struct {
	Propose  releaseProposeCommand `cmd:"" help:"Give a share of the live sessions new resources or another model, until the gates decide."`
	List     releaseListCommand    `cmd:"" help:"List the releases of a store."`
	Show     releaseShowCommand    `cmd:"" help:"Show what the sessions of a release have shown, and each decision."`
	Promote  releaseAct            `cmd:"" help:"Make the candidate what all new sessions get."`
	Rollback releaseAct            `cmd:"" help:"Give the candidate to no new session, also after its promotion."`
	Freeze   releaseAct            `cmd:"" help:"Promote a release by hand only. Guards still roll it back."`
	Resume   releaseAct            `cmd:"" help:"Let the gates promote a frozen release again."`
}

type releaseProposeCommand struct {
	flags.Store

	Resources   string             `placeholder:"ID" help:"The resources of the candidate."`
	Model       string             `placeholder:"NAME" help:"The model of the proxy that programs ask for."`
	Candidate   string             `placeholder:"NAME" help:"The model of the proxy that answers them in the candidate's sessions."`
	Share       float64            `default:"${releaseshare}" help:"Share of the sessions that get the candidate, up to 0.5."`
	MinGain     float64            `default:"0" help:"By how much the mean reward must be greater."`
	MinSessions int                `default:"50" help:"Sessions of the candidate that a promotion needs."`
	MaxSessions int                `default:"20000" help:"Sessions after which a release without evidence is rolled back."`
	Guard       map[string]float64 `placeholder:"METRIC=MORE" help:"How much greater the mean of a metric may be; repeat it. Default: errors, failed_tool_calls and refusals 0.05 more, tokens by half, latency to the double."`
}

func (c *releaseProposeCommand) Validate() error {
	switch {
	case c.Resources == "" && c.Candidate == "":
		return errors.New("--resources or --candidate: one must be given")
	case (c.Model == "") != (c.Candidate == ""):
		return errors.New("--model and --candidate: must both be given or neither")
	case c.Share == 0: // in a proposal zeros are defaults
		return errors.New("--share: got 0, must be above 0 and at most 0.5")
	case c.MinSessions == 0:
		return errors.New("--min-sessions: got 0, must be at least 2")
	case c.MaxSessions == 0:
		return errors.New("--max-sessions: got 0, must be at least twice --min-sessions")
	}
	p := c.proposal()
	return p.Check()
}

func (c *releaseProposeCommand) proposal() release.Proposal {
	p := release.Proposal{
		Candidate: release.Version{ResourcesID: c.Resources, Model: c.Candidate}, Model: c.Model, Share: c.Share,
		Gates: release.Gates{MinGain: c.MinGain, MinSessions: c.MinSessions, MaxSessions: c.MaxSessions},
	}
	for metric, tolerance := range c.Guard {
		p.Gates.Guards = append(p.Gates.Guards, release.Guard{Metric: metric, Tolerance: tolerance})
	}
	return p
}

func (c *releaseProposeCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	made, err := store.ProposeRelease(ctx, c.proposal())
	if err != nil {
		return err
	}
	if err := out.Printf("%s\n", made.ID); err != nil {
		return err
	}
	return out.Summarize("%s of the new sessions get the candidate; watch it with: agl release show %s", percent(made.Share), made.ID)
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'g', 3, 64) + " %" }

type releaseListCommand struct {
	flags.Store

	JSON bool `help:"Print JSON, one release a line, instead of a table."`
}

func (c *releaseListCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	found, err := store.ListReleases(ctx)
	if err != nil {
		return err
	}
	table := console.Table{Headers: []string{"RELEASE", "STATE", "CANDIDATE", "SHARE", "SESSIONS", "REWARD", "DIFFERENCE", "CREATED", "BY"}, Status: 1, Drop: []string{"BY", "CREATED", "SHARE"}}
	return printItems(out, c.JSON, &table, found, func(r *release.Release) []string {
		reward, _ := r.Gates.Bounds(&r.Evidence)
		state := string(r.State)
		if r.Frozen && r.State == release.StateCanary {
			state += " (frozen)"
		}
		return []string{
			r.ID, state, console.Dash(strings.Trim(r.Candidate.ResourcesID+" "+r.Candidate.Model, " ")), percent(r.Share),
			fmt.Sprintf("%d+%d", r.Evidence.Sessions[release.Candidate], r.Evidence.Sessions[release.Stable]),
			mean(&r.Evidence.Reward, release.Candidate) + " / " + mean(&r.Evidence.Reward, release.Stable), interval(reward),
			console.Time(agl.Some(r.CreateTime)), console.Dash(r.CreatedBy),
		}
	})
}

func mean(s *release.Sequence, arm release.Arm) string {
	if s.Arms[arm].N == 0 {
		return "-"
	}
	return strconv.FormatFloat(s.Arms[arm].Mean, 'g', 3, 64)
}

func interval(bounds [2]float64) string {
	if math.IsInf(bounds[0], 0) {
		return "-"
	}
	return fmt.Sprintf("%+.3g to %+.3g", bounds[0], bounds[1])
}

type releaseShowCommand struct {
	flags.Store

	Release string `arg:"" help:"Its id."`
	JSON    bool   `help:"Print JSON."`
}

func (c *releaseShowCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	r, err := store.GetRelease(ctx, c.Release)
	if err != nil {
		return err
	}
	if c.JSON {
		return out.JSON(document{&r})
	}
	return printRelease(out, &r)
}

func printRelease(out *console.Console, r *release.Release) error {
	reward, guards := r.Gates.Bounds(&r.Evidence)
	verdict := r.Gates.Decide(&r.Evidence)
	state := string(r.State)
	switch {
	case r.State != release.StateCanary:
		state += ": " + r.Decisions[len(r.Decisions)-1].Reason
	case r.Frozen:
		state += ", frozen: " + verdict.Reason
	default:
		state += ": " + verdict.Reason
	}
	if err := out.Printf("%s  %s\n\n", r.ID, state); err != nil {
		return err
	}
	table := console.Table{Headers: []string{"", "CANDIDATE", "STABLE", "DIFFERENCE", "ALLOWED"}}
	table.Rows = append(table.Rows,
		[]string{"resources", console.Dash(r.Candidate.ResourcesID), console.Dash(r.Stable.ResourcesID), "", ""},
		[]string{"model", console.Dash(r.Candidate.Model), console.Dash(cmp.Or(r.Stable.Model, r.Model)), "", ""},
		[]string{"sessions", strconv.FormatInt(r.Evidence.Sessions[release.Candidate], 10), strconv.FormatInt(r.Evidence.Sessions[release.Stable], 10), "", ""},
		[]string{"with a reward", strconv.FormatInt(r.Evidence.Reward.Arms[release.Candidate].N, 10), strconv.FormatInt(r.Evidence.Reward.Arms[release.Stable].N, 10), "", ""},
		[]string{"reward", mean(&r.Evidence.Reward, release.Candidate), mean(&r.Evidence.Reward, release.Stable), interval(reward), fmt.Sprintf("more than %g", r.Gates.MinGain)})
	if suite := r.Suite; suite != nil {
		table.Rows = append(table.Rows, []string{
			fmt.Sprintf("offline, %d tasks", suite.Tasks), strconv.FormatFloat(suite.Candidate, 'g', 3, 64), strconv.FormatFloat(suite.Stable, 'g', 3, 64),
			interval(suite.Difference), "not worse",
		})
	}
	for _, g := range r.Gates.Guards {
		s := r.Evidence.Guards[g.Metric]
		difference := "-"
		if s.Arms[release.Stable].N > 0 && !math.IsInf(guards[g.Metric][0], 0) {
			difference = interval(guards[g.Metric]) + " beyond what is allowed"
		}
		allowed := fmt.Sprintf("%g more", g.Tolerance)
		if g.Relative {
			allowed = percent(g.Tolerance) + " more"
		}
		stable := "-"
		if s.Arms[release.Stable].N > 0 {
			stable = strconv.FormatFloat(g.StableMean(&s), 'g', 3, 64)
		}
		table.Rows = append(table.Rows, []string{g.Metric, mean(&s, release.Candidate), stable, difference, allowed})
	}
	if err := table.Print(out); err != nil {
		return err
	}
	if err := out.Printf("\n"); err != nil {
		return err
	}
	for _, d := range r.Decisions {
		line := console.Time(agl.Some(d.Time)) + "  " + d.Action + " by " + console.Dash(d.By)
		if d.Reason != "" {
			line += ": " + d.Reason
		}
		if err := out.Printf("%s\n", line); err != nil {
			return err
		}
	}
	return nil
}

// releaseAct is a command that acts on a release.
type releaseAct struct {
	flags.Store

	Release string `arg:"" help:"Its id."`
	Reason  string `placeholder:"TEXT" help:"Why; it is kept with the decision."`

	act release.Act
}

// newReleaseCommand sets which act each of the four commands of type releaseAct does; no flag says it.
func newReleaseCommand() releaseCommand {
	return releaseCommand{
		Promote: releaseAct{act: release.ActPromote}, Rollback: releaseAct{act: release.ActRollback},
		Freeze: releaseAct{act: release.ActFreeze}, Resume: releaseAct{act: release.ActResume},
	}
}

func (c *releaseAct) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	r, err := store.ActOnRelease(ctx, c.Release, c.act, c.Reason)
	if err != nil {
		return err
	}
	frozen := ""
	if r.Frozen {
		frozen = "  frozen"
	}
	return out.Printf("%s  %s%s\n", r.ID, r.State, frozen)
}
