package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres"
)

// ownerOnly is the mode of the directories of projects.
const ownerOnly = 0o700

// projectsFlag lets a server have projects. In its methods own is the database of the server's own store, which has the list
// of projects.
type projectsFlag struct {
	Projects string `type:"home" placeholder:"DIR|postgres://…" help:"Serve projects at /p/NAME, each a database of its own: a file in this directory, or a database named after the one of this URL. In place of --db. See agl project."`
}

// place sets the server's own database. --projects counts for more than AGL_DB, which an image or a unit may set; it conflicts with --db.
func (f projectsFlag) place(own *flags.Database, gateway bool) (err error) {
	switch {
	case f.Projects == "":
		return nil
	case own.Name != store.DefaultDSN && own.Name != os.Getenv("AGL_DB"):
		return errors.New("--projects and --db: give one of them, each project has a database of its own")
	case gateway:
		return errors.New("--projects and --gateway: give one of them, the API of Agent-lightning v1.0 has one store")
	}
	own.Name = f.Projects
	switch kind, rest, named := strings.Cut(f.Projects, ":"); {
	case named && (kind == "postgres" || kind == "postgresql"):
	case named && (kind == string(store.SQLite) || kind == string(store.Memory) || strings.HasPrefix(rest, "//")): // as for --db; not quoted, since it may have a password
		return fmt.Errorf("--projects: got a name that begins with %s:, must be a directory such as /var/lib/agl, or postgres://USER@HOST/DATABASE", kind)
	default:
		own.Name = string(store.SQLite) + ":" + filepath.Join(f.Projects, "agl.db")
	}
	if own.DSN, err = store.ParseDSN(own.Name); err != nil {
		return fmt.Errorf("--projects: %w", err)
	}
	if own.Kind == store.Postgres {
		_, _, err = postgres.SiblingURL(own.URL, "")
	}
	return err
}

// makeDir makes the directories of projects that are files.
func (f projectsFlag) makeDir(own flags.Database) error {
	if f.Projects == "" || own.Kind != store.SQLite {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(f.Projects, "p"), ownerOnly); err != nil {
		return fmt.Errorf("--projects: %w", err)
	}
	return nil
}

// dsn returns the name of the database of a project.
func (f projectsFlag) dsn(own flags.Database, name string) (dsn, database string, err error) {
	if own.Kind == store.SQLite {
		return string(store.SQLite) + ":" + filepath.Join(f.Projects, "p", name+".db"), "", nil
	}
	return postgres.SiblingURL(own.URL, name)
}

// registry returns the projects, or nil without --projects.
func (f projectsFlag) registry(own flags.Database, documents agl.DocumentStore) *project.Registry {
	if f.Projects == "" {
		return nil
	}
	return project.NewRegistry(documents, func(ctx context.Context, name string) error {
		_, database, err := f.dsn(own, name)
		if err != nil || database == "" { // a file is made when it is opened
			return err
		}
		return postgres.CreateDatabase(ctx, own.URL, database)
	})
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
