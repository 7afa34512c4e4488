package flags

import (
	"crypto/tls"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/agl-go/agl/internal/httpserver"
)

// Trust has the flags of a command that sends requests to servers.
type Trust struct {
	CA         Path `name:"ca" env:"AGL_CA" placeholder:"FILE" help:"Trust the CA certificates in this PEM file besides those of the system."`
	ClientCert Path `name:"client-cert" env:"AGL_CLIENT_CERT" placeholder:"FILE" help:"Show the certificate in this PEM file to servers that ask who calls, such as a store with --tls-client-ca."`
	ClientKey  Path `name:"client-key" env:"AGL_CLIENT_KEY" placeholder:"FILE" help:"The key of --client-cert, as PEM."`
}

// Path is the path of a file, absolute. An empty one, such as from a variable that is set and
// empty, stays empty.
type Path string

// UnmarshalText makes a path absolute.
func (p *Path) UnmarshalText(text []byte) error {
	if *p = ""; len(text) > 0 {
		*p = Path(kong.ExpandPath(string(text)))
	}
	return nil
}

// TLS returns the configuration of clients; nil is their default.
func (f *Trust) TLS() (*tls.Config, error) {
	settings, err := httpserver.Trust{CAFile: string(f.CA), CertFile: string(f.ClientCert), KeyFile: string(f.ClientKey)}.Config()
	if err != nil {
		return nil, fmt.Errorf("--ca, --client-cert, --client-key: %w", err)
	}
	return settings, nil
}

// AgentEnv returns the variables that make programs trust the CA, too. These add to what a program
// trusts. Those of Python replace it, and are left to the operator.
func (f *Trust) AgentEnv() []string {
	if f.CA == "" {
		return nil
	}
	return []string{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + string(f.CA), "NODE_EXTRA_CA_CERTS=" + string(f.CA)}
}
