//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl/test/process"
)

// pythonOverTLS enqueues a rollout and finds it with the client of the Python package.
const pythonOverTLS = `
import asyncio, sys
from agentlightning.store.client_server import LightningStoreClient

async def main():
    client = LightningStoreClient(sys.argv[1])
    rollout = await client.enqueue_rollout(input={"q": "over TLS"})
    found = await client.get_rollout_by_id(rollout.rollout_id)
    print("found", found.input["q"])
    await client.close()

asyncio.run(main())
`

// The Python package must trust a private CA by Python's own environment variables.
func TestPythonOverTLS(t *testing.T) {
	t.Parallel()
	venv := os.Getenv("AGL_COMPAT_VENV")
	if venv == "" {
		t.Skip("AGL_COMPAT_VENV does not name an environment with the Python package; test/compat/venv.sh makes one")
	}
	certs := process.Dir(t)
	if made, err := exec.CommandContext(t.Context(), aglBinary, "cert", certs).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, made)
	}
	ca := filepath.Join(certs, "ca.pem")
	_, store := startStoreOn(t, "memory:", "--tls-cert", filepath.Join(certs, "server.pem"), "--tls-key", filepath.Join(certs, "server.key"))
	url := strings.Replace(strings.Replace(store, "127.0.0.1", "localhost", 1), "https://", "https://agl:"+token+"@", 1)
	run := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "python"), "-c", pythonOverTLS, url)
		cmd.Env = append(os.Environ(), env...)
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	if said, err := run("SSL_CERT_FILE="+ca, "REQUESTS_CA_BUNDLE="+ca); err != nil || !strings.Contains(said, "found over TLS") {
		t.Errorf("with the CA: %v\n%s", err, said)
	}
	if said, err := run(); err == nil || !strings.Contains(strings.ToLower(said), "certificate") {
		t.Errorf("without the CA: %v\n%s", err, said)
	}
}
