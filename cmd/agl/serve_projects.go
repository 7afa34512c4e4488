package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres"
)

// ownerOnly is the mode of the directories of projects.
const ownerOnly = 0o700

// placeProjects sets the database of the server's own store, which has the list of projects.
func (c *storeCommand) placeProjects() (err error) {
	switch {
	case c.Projects == "":
		return nil
	case c.DB.Name != store.DefaultDSN:
		return errors.New("--projects and --db: give one of them, each project has a database of its own")
	case c.Gateway:
		return errors.New("--projects and --gateway: give one of them, the API of Agent-lightning v1.0 has one store")
	}
	c.DB.Name = c.Projects
	if !strings.Contains(c.Projects, "://") {
		c.DB.Name = string(store.SQLite) + ":" + filepath.Join(c.Projects, "agl.db")
	}
	if c.DB.DSN, err = store.ParseDSN(c.DB.Name); err != nil {
		return fmt.Errorf("--projects: %w", err)
	}
	if c.DB.Kind == store.Postgres {
		_, _, err = postgres.SiblingURL(c.DB.URL, "")
	}
	return err
}

// makeProjectsDir makes the directories of projects that are files.
func (c *storeCommand) makeProjectsDir() error {
	if c.Projects == "" || c.DB.Kind != store.SQLite {
		return nil
	}
	return os.MkdirAll(filepath.Join(c.Projects, "p"), ownerOnly)
}

// projectDSN returns the name of the database of a project.
func (c *storeCommand) projectDSN(name string) (dsn, database string, err error) {
	if c.DB.Kind == store.SQLite {
		return string(store.SQLite) + ":" + filepath.Join(c.Projects, "p", name+".db"), "", nil
	}
	return postgres.SiblingURL(c.DB.URL, name)
}

// registry returns the projects, or nil without --projects.
func (c *storeCommand) registry(documents agl.DocumentStore) *project.Registry {
	if c.Projects == "" {
		return nil
	}
	return project.NewRegistry(documents, func(ctx context.Context, name string) error {
		_, database, err := c.projectDSN(name)
		if err != nil || database == "" { // a file is made when it is opened
			return err
		}
		return postgres.CreateDatabase(ctx, c.DB.URL, database)
	})
}

// openProject returns the function that opens the store of a project.
func (c *storeCommand) openProject(projects *project.Registry, page http.Handler, failed *access.Throttle, log *slog.Logger) func(ctx context.Context, name string) (*project.Tenant, error) {
	return func(ctx context.Context, name string) (*project.Tenant, error) {
		log := log.With("project", name)
		dsn, _, err := c.projectDSN(name)
		if err != nil {
			return nil, err
		}
		metrics, err := server.NewMetrics(prometheus.NewRegistry())
		if err != nil {
			return nil, err
		}
		engine, err := c.open(ctx, dsn, metrics, log)
		if err != nil {
			return nil, err
		}
		collector, stopCollecting, err := c.collecting(ctx, engine, log)
		if err != nil {
			return nil, errors.Join(err, engine.Close(ctx))
		}
		keys := access.NewProjectKeys(engine, access.NewProjectLimits(func(ctx context.Context) (access.Limits, error) {
			p, err := projects.Get(ctx, name)
			return p.Limits, err
		}))
		config := server.Config{
			UI: page, Store: engine, Collector: collector, Token: c.token(), SpanSecret: spanSecret(c.token(), name), Keys: keys, Audit: access.NewAudit(engine), Failed: failed,
			CORSOrigins: c.CORSOrigin, AllowedHosts: c.allowedHosts(), Metrics: metrics, Version: version(), Logger: log,
		}
		var api *server.Server
		if err = c.admit(&config, name, strings.TrimSuffix(project.Prefix, "/")+"/"+name); err == nil {
			api, err = server.New(config)
		}
		if err != nil {
			stopCollecting()
			return nil, errors.Join(err, engine.Close(ctx))
		}
		closeAll := func(ctx context.Context) error {
			stopCollecting()
			return engine.Close(ctx)
		}
		return &project.Tenant{Handler: api, Drain: api.Drain, InUse: func(ctx context.Context) error { return inUse(ctx, engine, time.Now()) }, Close: closeAll}, nil
	}
}

// inUse says what is under way in the store of a project, and would fail if it were archived. A run that has been silent for
// long was killed.
func inUse(ctx context.Context, s agl.Store, now time.Time) error {
	const shown = 3
	attempts, err := s.QueryRollouts(ctx, agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}, Paging: agl.Paging{Limit: shown},
	})
	if err != nil {
		return err
	}
	runs, err := agl.RunsOf(s).QueryRuns(ctx, agl.QueryRunsParams{})
	if err != nil {
		return err
	}
	var under []string
	for _, r := range runs.Items {
		if r.Status == agl.RunRunning && now.Sub(r.UpdateTime.Time()) < silentAfter {
			under = append(under, "run "+r.RunID)
		}
	}
	for i := range attempts.Items {
		under = append(under, "rollout "+attempts.Items[i].RolloutID)
	}
	if more := attempts.Total - len(attempts.Items); more > 0 {
		under = append(under, fmt.Sprintf("%d more rollouts", more))
	}
	if len(under) == 0 {
		return nil
	}
	return agl.Errorf(agl.CodeIllegalState, "%s under way, and would be lost; wait for the end, stop the run, or end rollouts with agl cancel; with force it is archived all the same", strings.Join(under, ", "))
}

// spanSecret is what the span tokens of a project are made with: one of its own, so that
// they are worth nothing in another project.
func spanSecret(token, name string) string {
	if token == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("agl project " + name))
	return hex.EncodeToString(mac.Sum(nil))
}
