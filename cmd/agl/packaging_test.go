package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestPackagedCommands: the command lines in packaging/ are ones that this program takes.
func TestPackagedCommands(t *testing.T) {
	t.Setenv("AGL_TOKEN", "t")
	t.Setenv("AGL_PROXY_KEYS", "a secret of sixteen bytes or more")
	lines := map[string][]string{}
	units, err := filepath.Glob("../../packaging/systemd/*.service")
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`\$\w+`)
	for _, name := range units {
		_, line, ok := strings.Cut(readText(t, name), "\nExecStart=/usr/bin/agl ")
		if !ok {
			t.Fatalf("%s starts no agl", name)
		}
		line, _, _ = strings.Cut(line, "\n")
		if strings.Contains(line, "--db") {
			t.Errorf("%s: AGL_DB in /etc/agl/agl.env counts for nothing beside --db", name)
		}
		line = strings.ReplaceAll(line, "$AGL_AGENT", "agent")
		lines[filepath.Base(name)] = strings.Fields(variable.ReplaceAllString(line, ""))
	}
	manifests, err := filepath.Glob("../../packaging/kustomize/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range manifests {
		for _, args := range containers(t, name) {
			lines[filepath.Base(name)] = args
		}
	}
	lines["Dockerfile"] = []string{"store", "--host", "0.0.0.0", "--insecure", "--token", "t"}
	if !strings.Contains(readText(t, "../../packaging/Dockerfile"), `CMD ["store", "--host", "0.0.0.0", "--insecure"]`) {
		t.Error("the Dockerfile has another command")
	}
	if len(lines) != 7 {
		t.Errorf("%d command lines, want those of 3 units, 3 deployments and an image: %v", len(lines), lines)
	}
	for name, args := range lines {
		if args[0] == "store" && strings.Contains(strings.Join(args, " "), "0.0.0.0") {
			args = append(args, "--token=t") // the manifests give it in the environment
		}
		for i := range args {
			if strings.HasPrefix(args[i], "/etc/agl/") { // as it is installed
				args[i] = "../../packaging/kustomize/proxy-config.yaml"
			}
		}
		if err := (&Main{Stdout: io.Discard, Stderr: io.Discard}).ParseFlags(args); err != nil {
			t.Errorf("%s: agl %s: %v", name, strings.Join(args, " "), err)
		}
	}
}

// TestUnitsStop: systemd sends SIGTERM to the runner alone, whose agents may finish, and starts a program again for as long as it takes. A runner
// ends with 0 when a run ends, and must be there for the next one.
func TestUnitsStop(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{"store": {"RestartSec=5"}, "proxy": {"RestartSec=5"}, "runner": {"RestartSec=5", "Restart=always", "KillMode=mixed"}} {
		unit := readText(t, "../../packaging/systemd/agl-"+name+".service")
		for _, setting := range settings {
			if !strings.Contains(unit, "\n"+setting+"\n") {
				t.Errorf("agl-%s.service lacks %s", name, setting)
			}
		}
	}
}

// TestSocketOfThePage: a server takes over the socket of docs/from-agent-lightning-v1.md with the command beside it, which has neither a
// certificate nor --insecure.
func TestSocketOfThePage(t *testing.T) {
	t.Parallel()
	_, address, _ := strings.Cut(readText(t, "../../docs/from-agent-lightning-v1.md"), "\n    ListenStream=")
	address, _, _ = strings.Cut(address, " ")
	if host, _, err := net.SplitHostPort(address); err != nil || !net.ParseIP(host).IsLoopback() {
		t.Errorf("ListenStream=%s: must be an address of this machine alone: %v", address, err)
	}
}

// TestPackagedSpool: the proxy's records wait on the volume that is there for them, the only place where it may write.
func TestPackagedSpool(t *testing.T) {
	t.Parallel()
	_, mount, _ := strings.Cut(readText(t, "../../packaging/kustomize/proxy.yaml"), "{name: spool, mountPath: ")
	mount, _, _ = strings.Cut(mount, "}")
	var config struct {
		Capture struct {
			SpoolDir string `yaml:"spool_dir"`
		}
	}
	if err := yaml.Unmarshal([]byte(readText(t, "../../packaging/kustomize/proxy-config.yaml")), &config); err != nil {
		t.Fatal(err)
	}
	if mount == "" || !strings.HasPrefix(config.Capture.SpoolDir, mount+"/") {
		t.Errorf("the volume is at %q, capture.spool_dir %q", mount, config.Capture.SpoolDir)
	}
}

// containers returns the arguments of each container of a manifest that runs agl.
func containers(t *testing.T, name string) (list [][]string) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(readText(t, name))))
	for {
		var document struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Image         string
							Command, Args []string
						}
					}
				}
			}
		}
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return list
		case err != nil:
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range document.Spec.Template.Spec.Containers {
			switch {
			case c.Image == "agl":
				list = append(list, c.Args)
			case len(c.Command) > 0 && c.Command[0] == "agl":
				list = append(list, c.Command[1:])
			}
		}
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
