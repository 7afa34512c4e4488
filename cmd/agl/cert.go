package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/durable"
)

type certCommand struct {
	Directory string   `arg:"" type:"path" help:"Where the files are: ca.pem and ca.key, which are made if they do not exist, and NAME.pem and NAME.key."`
	Name      string   `default:"server" help:"The name of the certificate's files. A client's must be given, and is also its common name."`
	Host      []string `placeholder:"HOST" help:"A name or an address under which the server is reached; repeat it for several. localhost, 127.0.0.1, ::1 and this machine's name are always there."`
	Client    bool     `help:"Make a certificate for a client, instead of a server's."`
	Days      int      `default:"365" help:"How long the certificate is valid. The CA is valid for ten years."`
}

var (
	certName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	hostName = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9_][A-Za-z0-9._-]*$`)
)

func (c *certCommand) Validate() error {
	const most = 3650
	switch {
	case !certName.MatchString(c.Name) || c.Name == "ca":
		return fmt.Errorf("--name=%s: must have letters, digits, dots, hyphens and underscores only, and not be ca", c.Name)
	case c.Days < 1 || c.Days > most:
		return fmt.Errorf("--days=%d: must be between 1 and %d", c.Days, most)
	case c.Client && len(c.Host) > 0:
		return errors.New("--client, --host: a client has no host; give one of them")
	case c.Client && c.Name == "server": // its files would replace those of the server
		return fmt.Errorf("--name=%s: must be another name with --client, such as runner: the server's files have this one", c.Name)
	}
	for _, host := range c.Host {
		if net.ParseIP(host) == nil && !hostName.MatchString(host) {
			return fmt.Errorf("--host=%s: must be a name or an address alone, such as trainer or 10.0.0.7, without a scheme or a port", host)
		}
	}
	return nil
}

func (c *certCommand) run(_ context.Context, out *console.Console) error {
	if err := durable.MkdirAll(c.Directory); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	now := time.Now()
	ca, err := c.authority(now)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: c.Name, Organization: []string{"agl"}},
		NotAfter: now.AddDate(0, 0, c.Days),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if !c.Client {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		c.addHosts(template)
	}
	if err := c.issue(c.Name, template, &ca, now); err != nil {
		return err
	}
	return out.Printf("%s, %s: valid until %s\n%s: what the other side trusts\n", c.file(c.Name+".pem"), c.file(c.Name+".key"),
		template.NotAfter.Format(time.DateOnly), c.file("ca.pem"))
}

// clockSkew is how far the clocks of machines may differ.
const clockSkew = time.Hour

func (c *certCommand) file(name string) string { return filepath.Join(c.Directory, name) }

// addHosts adds the names and addresses of a server.
func (c *certCommand) addHosts(to *x509.Certificate) {
	hosts := append([]string{"localhost", "127.0.0.1", "::1"}, c.Host...)
	if name, err := os.Hostname(); err == nil {
		hosts = append(hosts, name)
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			to.IPAddresses = append(to.IPAddresses, ip)
		} else {
			to.DNSNames = append(to.DNSNames, host)
		}
	}
}

// authority reads the CA, which it makes if there is none.
func (c *certCommand) authority(now time.Time) (tls.Certificate, error) {
	certificate, key := c.file("ca.pem"), c.file("ca.key")
	if _, err := os.Stat(certificate); errors.Is(err, fs.ErrNotExist) {
		if err := c.newAuthority(now); err != nil {
			return tls.Certificate{}, err
		}
	}
	ca, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		err = fmt.Errorf("read the CA from %s and %s: %w", certificate, key, err)
	}
	return ca, err
}

func (c *certCommand) newAuthority(now time.Time) error {
	const years = 10
	return c.issue("ca", &x509.Certificate{
		Subject:  pkix.Name{CommonName: "agl private CA", Organization: []string{"agl"}},
		NotAfter: now.AddDate(years, 0, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}, nil, now)
}

// issue makes a key and a certificate that ca signs. Without a ca the certificate signs itself.
func (c *certCommand) issue(name string, template *x509.Certificate, ca *tls.Certificate, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if ca == nil {
		ca = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	template.NotBefore = now.Add(-clockSkew)
	certificate, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	return c.write(name, certificate, key)
}

// write writes the key first, so that a certificate never lies there without it.
func (c *certCommand) write(name string, certificate []byte, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path, kind string
		content    []byte
		mode       fs.FileMode
	}{
		{c.file(name + ".key"), "PRIVATE KEY", secret, 0o600},
		{c.file(name + ".pem"), "CERTIFICATE", certificate, 0o644},
	} {
		if err := os.WriteFile(f.path+".new", pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.content}), f.mode); err != nil {
			return fmt.Errorf("make certificates: %w", err)
		}
		if err := os.Rename(f.path+".new", f.path); err != nil {
			return fmt.Errorf("make certificates: %w", err)
		}
	}
	return nil
}
