package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/rest/client"
)

type keyCommand struct {
	Create keyCreateCommand `cmd:"" help:"Make a key and print it. It is shown this once."`
	List   keyListCommand   `cmd:"" help:"List the keys of a store, without what makes them work."`
	Revoke keyRevokeCommand `cmd:"" help:"End keys. Every server refuses them within a second."`
}

type keyCreateCommand struct {
	flags.Store
	flags.Limits
	flags.Rules

	Name    string         `arg:"" help:"What the key is for, such as the machine that has it."`
	Scope   []string       `required:"" placeholder:"SCOPE" help:"What it may do: read, ingest, agent, live, runner, train, admin; repeat it or separate several by commas."`
	Expire  flags.Duration `placeholder:"TIME" help:"How long it is valid (12h, 30d). Default: until it is revoked."`
	Rollout string         `placeholder:"ID" help:"With --scope agent: the rollout of the attempt that it is for."`
	Attempt string         `placeholder:"ID" help:"With --scope agent: the attempt that it is for."`

	scopes access.Scope
}

const (
	day           = flags.Duration(24 * time.Hour)
	longestExpire = 36500 * day // as the store allows
)

func (c *keyCreateCommand) Validate() (err error) {
	for i := range c.Scope { // of "read, live"
		c.Scope[i] = strings.TrimSpace(c.Scope[i])
	}
	if c.scopes, err = access.ParseScopes(c.Scope); err != nil {
		return fmt.Errorf("--scope: %w", err)
	}
	if c.scopes == 0 {
		return fmt.Errorf("--scope: got none, must be one or more of %s", access.Any)
	}
	if c.Expire > longestExpire {
		return fmt.Errorf("--expire=%s: must be at most %dd; leave it out for a key that does not expire", time.Duration(c.Expire), longestExpire/day)
	}
	if isAgent := c.scopes == access.Agent; isAgent != (c.Rollout != "") || isAgent != (c.Attempt != "") {
		return errors.New("--rollout and --attempt: must both be given with --scope agent, and with no other")
	}
	return nil
}

func (c *keyCreateCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	p := access.NewKey{Name: c.Name, Scopes: c.scopes, Expire: time.Duration(c.Expire), Rules: c.Rules.Rules(), Limits: c.Limits.Limits()}
	if c.Rollout != "" {
		p.Attempt = agl.Some(agl.Claim{RolloutID: c.Rollout, AttemptID: c.Attempt})
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that is gone must be an error of Printf, not the end of this process
	created, err := store.CreateKey(ctx, p)
	if err != nil {
		return err
	}
	if err := out.Printf("%s\n", created.Text); err != nil {
		// Nobody has the key.
		if _, failed := store.RevokeKey(ctx, created.ID); failed != nil {
			return fmt.Errorf("%w; key %s exists and was not shown; end it with: agl key revoke %s%s (its revocation failed: %w)", err, created.ID, created.ID, c.Flag(), failed)
		}
		return fmt.Errorf("%w; key %s was not shown and is revoked; make another", err, created.ID)
	}
	return out.Summarize("key %s (%s) may %s, and is not shown again; end it with: agl key revoke %s%s",
		created.ID, console.Printable(created.Name), strings.Join(created.Scopes, ", "), created.ID, c.Flag())
}

type keyListCommand struct {
	flags.Store

	All  bool `help:"Also those that are expired or revoked."`
	JSON bool `help:"Print JSON, one key a line, instead of a table."`
}

func (c *keyListCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	found, err := store.ListKeys(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	table := console.Table{Headers: []string{"KEY", "STATE", "NAME", "SCOPES", "USED", "CREATED", "EXPIRES", "BY"}, Status: 1, Drop: []string{"BY", "CREATED"}}
	found = slices.DeleteFunc(found, func(k access.Key) bool { return !c.All && k.State(now) != access.StateValid })
	err = printItems(out, c.JSON, &table, found, func(k *access.Key) []string {
		expires := "-"
		if k.ExpireTime != nil {
			expires = console.Time(agl.Some(*k.ExpireTime))
		}
		return []string{
			console.Dash(k.ID), k.State(now), console.Dash(k.Name), strings.Join(k.Scopes, ","), console.Dash(used(k)), console.Time(agl.Some(k.CreateTime)), expires, console.Dash(k.CreatedBy),
		}
	})
	if err != nil || c.JSON {
		return err
	}
	budget, err := store.ProjectBudget(ctx)
	if err != nil || budget.Limits == (access.Limits{}) {
		return err
	}
	return out.Summarize("the project: %s", limitsText(&budget.Limits, &budget.Usage))
}

// used says what a key has used of its limits, and the rules of its calls.
func used(k *access.Key) string {
	var parts []string
	if k.Usage != nil {
		parts = append(parts, limitsText(&k.Limits, k.Usage))
	}
	if k.CallsPerMinute > 0 {
		parts = append(parts, fmt.Sprintf("%d calls/min", k.CallsPerMinute))
	}
	if len(k.Models) > 0 {
		parts = append(parts, "of "+strings.Join(k.Models, " "))
	}
	return strings.Join(parts, ", ")
}

// limitsText lists limits, with the usage of each if it is known.
func limitsText(l *access.Limits, usage *access.Usage) string {
	var parts []string
	add := func(used, limit int64, unit string) {
		switch {
		case limit == 0:
		case usage == nil:
			parts = append(parts, fmt.Sprintf("%d %s", limit, unit))
		default:
			parts = append(parts, fmt.Sprintf("%d/%d %s", used, limit, unit))
		}
	}
	var spent, reserved access.Amounts
	if usage != nil {
		spent, reserved = usage.Spent, usage.Reserved
	}
	switch {
	case l.MaxUSD == 0:
	case usage == nil:
		parts = append(parts, "$"+dollars(l.MaxUSD))
	default:
		parts = append(parts, "$"+dollars(float64(spent.NanoUSD)/1e9)+"/"+dollars(l.MaxUSD))
	}
	add(spent.Tokens, l.MaxTokens, "tokens")
	add(reserved.Calls, l.MaxCalls, "calls")
	add(spent.Rollouts, l.MaxRollouts, "rollouts")
	add(spent.Bytes, l.MaxBytes, "bytes")
	return strings.Join(parts, ", ")
}

// dollars shows cents, and of less than a cent two digits.
func dollars(amount float64) string {
	decimals := 2
	if amount > 0 && amount < 0.01 {
		decimals = 1 - int(math.Floor(math.Log10(amount)))
	}
	return strconv.FormatFloat(amount, 'f', decimals, 64)
}

type keyRevokeCommand struct {
	flags.Store

	Keys    []string `arg:"" optional:"" name:"key" help:"Ids of the keys: what stands between the two underscores of a key."`
	Rollout string   `placeholder:"ID" help:"Instead of a key: end the keys that proxies and runners have made for the attempts of this rollout, and stand in no list."`
	Attempt string   `placeholder:"ID" help:"With --rollout: for this attempt only."`
}

func (c *keyRevokeCommand) Validate() error {
	if (len(c.Keys) > 0) == (c.Rollout != "") || c.Attempt != "" && c.Rollout == "" {
		return errors.New("give ids of keys, or --rollout, with or without --attempt")
	}
	if slices.ContainsFunc(c.Keys, access.IsKey) {
		return errors.New("got a whole key, must be its id, the part between the underscores: command lines are seen by others")
	}
	return nil
}

func (c *keyRevokeCommand) ask(ctx context.Context, out *console.Console, store *client.Client) error {
	if c.Rollout != "" {
		return c.revokeAttempt(ctx, store, out)
	}
	var failed []error
	for _, id := range c.Keys { // each that can be, whatever is wrong with another
		key, err := store.RevokeKey(ctx, id)
		if err == nil {
			err = out.Printf("%s  %s\n", key.ID, key.State(time.Now()))
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (c *keyRevokeCommand) revokeAttempt(ctx context.Context, store *client.Client, out *console.Console) error {
	revoked, err := store.RevokeAttempt(ctx, agl.Claim{RolloutID: c.Rollout, AttemptID: c.Attempt})
	if err != nil {
		return err
	}
	return out.Printf("%s  %s  %s\n", revoked.RolloutID, cmp.Or(revoked.AttemptID, "all attempts"), access.StateRevoked)
}
