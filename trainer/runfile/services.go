package runfile

import (
	"path/filepath"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy/configfile"
	"github.com/agl-go/agl/trainer/keys"
)

func (d *draft) proxy(to **Proxy) yamlfile.Value {
	return yamlfile.Via(func(p *Proxy) yamlfile.Value {
		key := yamlfile.Key
		own := []yamlfile.Field{
			key("listen", "The address to serve on; by default a free port of 127.0.0.1.", yamlfile.Address(&p.Listen)),
			key("model", "The model that agents are told to request. With an engine it names the engine's model, by default policy; otherwise it is one of models, by default the first.", yamlfile.Text(&p.Model)),
			key("sampling", "Sampling parameters of training, such as {temperature: 1.0}.", yamlfile.Object(&p.Sampling)),
			key("val_sampling", "Sampling parameters of validation; by default those of training.", yamlfile.Object(&p.ValSampling)),
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
		key("db", "The database, as `agl store --db` takes it: sqlite:PATH, postgres://… or memory:. By default the file agl.db in the output folder.",
			keys.Database(d.dir, &to.Database)),
		key("url", "The URL of a store server, instead of a database.", yamlfile.URL(&to.URL)),
		key("token", "The store's token; by default the one in AGL_TOKEN.", yamlfile.Secret(&to.Token)),
		key("listen", "The address of the store of this run for runners on other machines; without it there are none.", yamlfile.Address(&to.Listen)),
		key("unresponsive", "Fails an attempt without a heartbeat for this time.", yamlfile.Duration(&to.Unresponsive)).Default("10m"),
	).Check(func(s *yamlfile.Scope) {
		if s.Given("url") {
			for _, other := range []string{"db", "listen"} {
				if s.Given(other) {
					s.Failf(other, "given together with url, but the store at the url has its own")
				}
			}
		}
	})
}
