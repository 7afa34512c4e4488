package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/secret"
)

type resourcesCommand struct {
	ID        string `arg:"" optional:"" help:"Show this bundle, each resource on a line of its own: its id, or latest."`
	Contains  string `placeholder:"TEXT" help:"Only bundles with this in their id."`
	listFlags `kong:"set='limit=100',set='order= It may come first.'"`
}

// Validate puts the arguments in order.
func (c *resourcesCommand) Validate() error {
	if err := c.Order(&c.ID, "", "bundle"); err != nil {
		return err
	}
	if c.ID != "" && c.Contains != "" {
		return fmt.Errorf("--contains=%s: has no meaning with the id of one bundle", c.Contains)
	}
	return c.listFlags.Validate()
}

func (c *resourcesCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	if c.ID != "" {
		return c.show(ctx, out, store)
	}
	return (&listing[agl.ResourcesUpdate, *agl.ResourcesUpdate]{
		flags:   c.listFlags,
		headers: []string{"RESOURCES", "VERSION", "CREATED", "UPDATED", "HOLDS"},
		status:  -1,
		drop:    []string{"CREATED", "UPDATED"},
		row:     plainRow(bundleRow),
		query: func(ctx context.Context, p agl.Paging) (agl.Page[agl.ResourcesUpdate], error) {
			p.SortBy, p.Order = "update_time", agl.Descending
			return store.QueryResources(ctx, agl.QueryResourcesParams{ResourcesIDContains: c.Contains, Paging: p})
		},
	}).show(ctx, out)
}

func bundleRow(u *agl.ResourcesUpdate) []string {
	var holds []string
	for _, n := range u.Resources {
		holds = append(holds, fmt.Sprintf("%s (%s)", console.Printable(n.Name), n.Resource.ResourceType()))
	}
	return []string{
		console.Dash(u.ResourcesID), strconv.Itoa(u.Version), console.Time(agl.Some(u.CreateTime)),
		console.Time(agl.Some(u.UpdateTime)), console.Dash(strings.Join(holds, ", ")),
	}
}

// show prints one bundle.
func (c *resourcesCommand) show(ctx context.Context, out *console.Console, store agl.Store) error {
	var bundle agl.ResourcesUpdate
	var err error
	if c.ID == "latest" {
		bundle, err = store.GetLatestResources(ctx)
	} else {
		bundle, err = store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: c.ID})
	}
	if err != nil {
		return c.Wrap(err)
	}
	if c.JSON {
		return out.JSON(&bundle)
	}
	table := console.Table{Headers: []string{"NAME", "TYPE", "RESOURCE"}, Status: -1}
	for _, n := range bundle.Resources {
		text, err := resourceText(n.Resource)
		if err != nil {
			return err
		}
		table.Rows = append(table.Rows, []string{console.Dash(n.Name), string(n.Resource.ResourceType()), text})
	}
	if err := out.Printf("%s  version %d  updated %s\n", console.Printable(bundle.ResourcesID), bundle.Version,
		console.Time(agl.Some(bundle.UpdateTime))); err != nil {
		return err
	}
	return table.Print(out)
}

// resourceText is what a table says of a resource.
func resourceText(r agl.Resource) (string, error) {
	if template, ok := r.(agl.PromptTemplate); ok {
		return fmt.Sprintf("%s: %s", template.Engine, console.Printable(template.Template)), nil
	}
	var llm agl.LLM
	switch r := r.(type) {
	case agl.LLM:
		llm = r
	case agl.ProxyLLM:
		llm = r.LLM
	}
	text := console.Printable(llm.Model) + " at " + console.Printable(secret.RedactURL(llm.Endpoint))
	if len(llm.SamplingParameters) == 0 || string(llm.SamplingParameters) == "{}" {
		return text, nil
	}
	parameters, err := console.RedactJSON(llm.SamplingParameters)
	if err != nil {
		return "", err
	}
	return text + " " + console.Printable(string(parameters)), nil
}
