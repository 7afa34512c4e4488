package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
)

type resourcesCommand struct {
	storeFlags
	ID       string `arg:"" optional:"" help:"Show this bundle, each resource on a line of its own: its id, or latest."`
	Contains string `placeholder:"TEXT" help:"Only bundles with this in their id."`
	Limit    int    `default:"100" help:"List at most so many, the newest first; 0 is all."`
	JSON     bool   `help:"Print JSON, one bundle a line, instead of a table."`
}

// Help is shown below the flags.
func (resourcesCommand) Help() string {
	return "API keys are not shown.\n\nExamples:\n  agl resources\n  agl resources latest --json"
}

// Validate is called by kong.
func (c *resourcesCommand) Validate() error {
	switch {
	case c.Limit < 0:
		return fmt.Errorf("--limit=%d: must be 0 (all) or more", c.Limit)
	case c.ID != "" && c.Contains != "":
		return fmt.Errorf("--contains=%s: has no meaning with the id of one bundle", c.Contains)
	}
	return nil
}

func (c *resourcesCommand) run(ctx context.Context, m *Main) error {
	store, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	if c.ID != "" {
		return c.show(ctx, m, store)
	}
	listing := grid{headers: []string{"RESOURCES", "VERSION", "CREATED", "UPDATED", "HOLDS"}, status: -1}
	err = allPages(ctx, c.Limit, func(ctx context.Context, p agl.Paging) (agl.Page[agl.ResourcesUpdate], error) {
		p.SortBy, p.Order = "update_time", agl.Descending
		return store.QueryResources(ctx, agl.QueryResourcesParams{ResourcesIDContains: c.Contains, Paging: p})
	}, func(u *agl.ResourcesUpdate) error {
		if c.JSON {
			return m.printJSON(u.AppendJSON(nil))
		}
		listing.rows = append(listing.rows, bundleRow(u))
		return nil
	})
	if err != nil || c.JSON {
		return c.errStore(err)
	}
	return listing.print(m)
}

func bundleRow(u *agl.ResourcesUpdate) []string {
	var holds []string
	for _, n := range u.Resources {
		holds = append(holds, fmt.Sprintf("%s (%s)", printable(n.Name), n.Resource.ResourceType()))
	}
	return []string{
		orDash(u.ResourcesID), strconv.Itoa(u.Version), u.CreateTime.Time().Local().Format(time.DateTime),
		u.UpdateTime.Time().Local().Format(time.DateTime), orDash(strings.Join(holds, ", ")),
	}
}

// show prints one bundle.
func (c *resourcesCommand) show(ctx context.Context, m *Main, store agl.Store) error {
	var bundle agl.ResourcesUpdate
	var err error
	if c.ID == "latest" {
		bundle, err = store.GetLatestResources(ctx)
	} else {
		bundle, err = store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: c.ID})
	}
	if err != nil {
		return c.errStore(err)
	}
	if c.JSON {
		return m.printJSON(bundle.AppendJSON(nil))
	}
	listing := grid{headers: []string{"NAME", "TYPE", "RESOURCE"}, status: -1}
	for _, n := range bundle.Resources {
		text, err := resourceText(n.Resource)
		if err != nil {
			return err
		}
		listing.rows = append(listing.rows, []string{orDash(n.Name), string(n.Resource.ResourceType()), text})
	}
	if err := m.printf("%s  version %d  updated %s\n", printable(bundle.ResourcesID), bundle.Version,
		bundle.UpdateTime.Time().Local().Format(time.DateTime)); err != nil {
		return err
	}
	return listing.print(m)
}

// resourceText is what a table says of a resource.
func resourceText(r agl.Resource) (string, error) {
	if template, ok := r.(agl.PromptTemplate); ok {
		return fmt.Sprintf("%s: %s", template.Engine, printable(template.Template)), nil
	}
	var llm agl.LLM
	switch r := r.(type) {
	case agl.LLM:
		llm = r
	case agl.ProxyLLM:
		llm = r.LLM
	}
	text := printable(llm.Model) + " at " + printable(redactURL(llm.Endpoint))
	if len(llm.SamplingParameters) == 0 || string(llm.SamplingParameters) == "{}" {
		return text, nil
	}
	parameters, err := redactJSON(llm.SamplingParameters)
	if err != nil {
		return "", err
	}
	return text + " " + printable(string(parameters)), nil
}
