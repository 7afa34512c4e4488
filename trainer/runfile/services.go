package runfile

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy/configfile"
	"github.com/agl-go/agl/store/backend"
)

func (d *draft) proxy(to **Proxy) yamlfile.Value {
	return yamlfile.Via(func(p *Proxy) yamlfile.Value {
		key := yamlfile.Key
		own := []yamlfile.Field{
			key("listen", "Where to serve; a free port of 127.0.0.1 when it is not here.", yamlfile.Address(&p.Listen)),
			key("model", "What agents are told to ask for. With an engine it names the engine's model, policy when it is not here; else one of models, the first when it is not here.", yamlfile.Text(&p.Model)),
			key("sampling", "Sampling parameters that agents are given in training, such as {temperature: 1.0}.", yamlfile.Object(&p.Sampling)),
			key("val_sampling", "The same in validation; sampling when it is not here.", yamlfile.Object(&p.ValSampling)),
		}
		return yamlfile.Mapping(append(own, configfile.Keys(&p.Config)...)...).Check(func(s *yamlfile.Scope) {
			if spool := &p.Config.SpoolDir; *spool != "" && !filepath.IsAbs(*spool) {
				*spool = filepath.Join(d.dir, *spool)
			}
			if s.Clean() {
				s.Fail(p.Config.Validate())
			}
		})
	}, func(p Proxy) { *to = &p })
}

func (d *draft) store(to *Store) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Mapping(
		key("db", "The database, as `agl store --db` has it: sqlite:PATH, postgres://… or memory:. The file agl.db in the output folder when it is not here.",
			yamlfile.Text(&to.Database)),
		key("url", "The URL of a store server that runs elsewhere, instead of a database.", yamlfile.URL(&to.URL)),
		key("token", "The store's token; that in AGL_TOKEN when it is not here.", yamlfile.Secret(&to.Token)),
		key("listen", "Where runners on other machines find the store of this run; without it there are none.", yamlfile.Address(&to.Listen)),
		key("unresponsive", "Fails an attempt that nobody has heard of for so long.", yamlfile.Duration(&to.Unresponsive)).Default("10m"),
	).Check(func(s *yamlfile.Scope) {
		if s.Given("url") {
			for _, other := range []string{"db", "listen"} {
				if s.Given(other) {
					s.Failf(other, "given together with url, but the store at the url is another's")
				}
			}
		}
		if s.Given("db") {
			d.database(s, to)
		}
	})
}

// database checks the name of a database and makes its path absolute.
func (d *draft) database(s *yamlfile.Scope, to *Store) {
	dsn, err := backend.Parse(to.Database)
	switch {
	case err != nil:
		s.FailAt("db", err)
	case dsn.Kind == backend.Postgres && hasPassword(to.Database):
		s.Failf("db", "it holds a password, which has no place in this file; use PGPASSWORD or ~/.pgpass")
	case dsn.Kind == backend.SQLite && !filepath.IsAbs(dsn.Path):
		to.Database = strings.TrimSuffix(to.Database, dsn.Path) + filepath.Join(d.dir, dsn.Path)
	}
}

// hasPassword looks for a password in the URL of a database, which may be among
// its parameters.
func hasPassword(database string) bool {
	u, err := url.Parse(database)
	if err != nil {
		return false
	}
	_, has := u.User.Password()
	for name := range u.Query() {
		has = has || strings.Contains(strings.ToLower(name), "pass")
	}
	return has
}
