package runfile

import (
	"time"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy/configfile"
	"github.com/agl-go/agl/trainer/keys"
)

func (d *draft) proxy(to **Proxy) yamlfile.Value {
	return yamlfile.Via(func(p *Proxy) yamlfile.Value {
		key := yamlfile.Key
		own := []yamlfile.Field{
			key("listen", "The address to serve on; by default a free port of 127.0.0.1.", yamlfile.Address(&p.Listen)),
			key("tls_cert", tlsCert, yamlfile.Path(&p.TLS.Cert)),
			key("tls_key", "The key of tls_cert, as PEM.", yamlfile.Path(&p.TLS.Key)),
			key("insecure", insecure, yamlfile.Bool(&p.TLS.Insecure)).Default(false),
			key("model", "The model that agents are told to request. With an engine it names the engine's model, by default policy; otherwise it is one of models, by default the first.", yamlfile.Text(&p.Model)),
			key("sampling", "Sampling parameters of training, such as {temperature: 1.0}.", yamlfile.Object(&p.Sampling)),
			key("val_sampling", "Sampling parameters of validation; by default those of training.", yamlfile.Object(&p.ValSampling)),
		}
		return yamlfile.Mapping(append(own, configfile.Keys(&p.Config)...)...).Check(func(s *yamlfile.Scope) {
			if program := p.Config.Sessions.Program; program != nil {
				program.Dir = d.dir
			}
			checkTLS(s)
			if s.Clean() {
				s.Fail(p.Config.Validate())
			}
		})
	}, func(p Proxy) { *to = &p })
}

const (
	tlsCert  = "Encrypts listen with the certificate in this PEM file, which is read again when it changes. See `agl cert`."
	insecure = "Allows a listen address that other machines can reach without tls_cert, such as inside a network that encrypts."
)

func checkTLS(s *yamlfile.Scope) {
	for _, names := range [][2]string{{"tls_cert", "tls_key"}, {"tls_key", "tls_cert"}} {
		if s.Given(names[0]) && !s.Given(names[1]) {
			s.Failf(names[0], "given without %s, must be both or neither", names[1])
		}
	}
}

// MinUnresponsive is the least that a store without limits of its rollouts may wait for a heartbeat: it lets a runner lose one of
// its default interval. Runners know only the limit of a rollout itself, and send more of them where that is short.
const MinUnresponsive = 20 * time.Second

func (d *draft) store(to *Store) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Mapping(
		key("db", "The database, as `agl store --db` takes it: sqlite:PATH, postgres://… or memory:. By default the file agl.db in the output folder.",
			keys.Database(d.dir, &to.Database)),
		key("url", "The URL of a store server, instead of a database.", yamlfile.URL(&to.URL)),
		key("token", "The store's token; by default the one in AGL_TOKEN.", yamlfile.Secret(&to.Token)),
		key("listen", "The address of the store of this run for runners on other machines; without it there are none.", yamlfile.Address(&to.Listen)),
		key("tls_cert", tlsCert, yamlfile.Path(&to.TLS.Cert)),
		key("tls_key", "The key of tls_cert, as PEM.", yamlfile.Path(&to.TLS.Key)),
		key("insecure", insecure, yamlfile.Bool(&to.TLS.Insecure)).Default(false),
		key("unresponsive", "Fails an attempt without a heartbeat for this time, 20s at least. `agent.unresponsive` comes first, which grpo, sft and apo set to 5m by default.", yamlfile.Duration(&to.Unresponsive)).Default("10m"),
	).Check(func(s *yamlfile.Scope) {
		checkTLS(s)
		if to.Unresponsive > 0 && to.Unresponsive < MinUnresponsive {
			s.Failf("unresponsive", "got %s, must be at least %s, because runners send a heartbeat every 10s; agent.unresponsive may be shorter", to.Unresponsive, MinUnresponsive)
		}
		if s.Given("url") {
			for _, other := range []string{"db", "listen", "tls_cert", "tls_key"} {
				if s.Given(other) {
					s.Failf(other, "given together with url, but the store at the url has its own")
				}
			}
		}
	})
}
