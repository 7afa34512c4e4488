//go:build examples

package examples_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl/access/oidc/oidctest"
	"github.com/agl-go/agl/test/process"
)

// TestEveryPageIsRun checks that TestPages runs every page with commands.
func TestEveryPageIsRun(t *testing.T) {
	ran := map[string]bool{}
	for _, w := range walks() {
		ran[w.page] = true
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, file := range pages {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page, has := "docs/"+filepath.Base(file), false
		for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
			has = has || block[1] == "sh" || block[1] == "bash" || block[1] == "shell" || block[1] == "console"
		}
		for _, block := range indented.FindAllString(fenced.ReplaceAllString(string(text), ""), -1) {
			has = has || begins.MatchString(strings.TrimPrefix(block, "    "))
		}
		if has && !ran[page] {
			t.Errorf("%s has commands, and is not in walks", page)
		}
	}
}

// prelude defines the functions that the scripts use: serve LOG TEXT COMMAND… starts a server
// and waits until it has logged the text, unless that is empty; stop ends all servers;
// finished N waits until N rollouts are finished;
// shorter FILE shortens a run as the variable of that name does.
const prelude = `
serve() { : >"$1"; "${@:3}" >>"$1" 2>&1 & [ -z "$2" ] || grep -q -m1 -- "$2" <(tail -f -n +1 --pid=$! "$1"); }
stop() { [ -z "$(jobs -p)" ] || kill $(jobs -p); wait; }
shorter() { [ -n "$LONG" ] || { grep -q 'steps: 25, prompts_per_step: 16' "$1" && sed -i 's/steps: 25, prompts_per_step: 16/steps: 8, prompts_per_step: 12/' "$1"; }; }
finished() { until [ "$(agl rollouts --status succeeded --json --limit 0 | wc -l)" = "$1" ]; do sleep 0.1; done; }
`

// TestPages runs the commands of pages unchanged, each page in a network of its own, so that
// the ports are free and nothing else can be reached.
func TestPages(t *testing.T) {
	t.Parallel()
	isolate := []string{"unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		isolate = append(isolate, "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), isolate[0], append(isolate[1:], "ip", "link", "set", "lo", "up")...).CombinedOutput(); err != nil {
		t.Skipf("no network of its own for each page: %v: %s", err, out)
	}
	for _, w := range walks() {
		t.Run(strings.TrimSuffix(filepath.Base(w.page), ".md"), func(t *testing.T) {
			t.Parallel()
			w.run(t, isolate)
		})
	}
}

func (w walk) run(t *testing.T, isolate []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", w.page))
	if err != nil {
		t.Fatal(err)
	}
	dir, blocks, bin := process.Dir(t), t.TempDir(), t.TempDir()
	root, place := dir, ""
	if w.repository {
		dir = t.TempDir() // the sources have what is looked for
		copyRepository(t, dir)
		if root, err = filepath.Abs("../.."); err != nil {
			t.Fatal(err)
		}
		place = fmt.Sprintf("mkdir -p %[1]q/.cache\nmount --bind %[2]q/.cache %[1]q/.cache\nmount --rbind %[1]q %[2]q\ncd $ROOT\n", dir, root)
	}
	commands := w.read(t, string(text), blocks)
	if err := os.Symlink(program, filepath.Join(bin, "agl")); err != nil {
		t.Fatal(err)
	}
	path := []string{bin, filepath.Join(os.Getenv("AGL_EXAMPLES_VENV"), "bin")}
	if w.node {
		path = append(path, newNode(t)...)
	}
	sources, err := filepath.Abs("../../python/src")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\nip link set lo up\n" + place + prelude + w.setup + "\n" + commands + "\ncd $ROOT\n" + w.after + "\n"
	longest, unabridged := 20*time.Minute, "" // only a failure takes so long
	if *long {
		longest, unabridged = time.Hour, "yes"
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, isolate[0], append(isolate[1:], "bash", "-c", script)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ROOT="+root, "BLOCKS="+blocks, "PYTHONPATH="+sources, "TERM=dumb",
		"PROVIDER="+os.Args[0]+" "+roleProvider, "SECRET="+oidctest.ClientSecret, "PASSWORD="+oidctest.Password, "LONG="+unabridged,
		"PATH="+strings.Join(append(path, os.Getenv("PATH")), string(os.PathListSeparator)))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is right
		for _, name := range logs {
			log, err := os.ReadFile(name)
			t.Logf("%s: %v\n%s", filepath.Base(name), err, log)
		}
	}
}

// copyRepository copies the files of the repository as they are now.
func copyRepository(t *testing.T, dir string) {
	t.Helper()
	const archive = `git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar x -C "$0"`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", archive, dir)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

var (
	fenced   = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	indented = regexp.MustCompile(`(?m)(^    .*\n)+`)
	begins   = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:\./)?(agl|agl-go|curl|cd|echo|export|make|mkdir|time|go|pip|python3?|some-program)(?:\s|$)`)
)

// needs begins a block of commands which says that they need more than any machine has.
const needs = "# needs "

// read returns the script of a page's commands, and writes its other blocks to files.
func (w walk) read(t *testing.T, text, blocks string) string {
	t.Helper()
	count := map[string]int{}
	keep := func(kind, content string) {
		name := fmt.Sprintf("%s.%d", kind, count[kind])
		count[kind]++
		if err := os.WriteFile(filepath.Join(blocks, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = fenced.ReplaceAllStringFunc(text, func(found string) string {
		parts := fenced.FindStringSubmatch(found)
		keep(parts[1], parts[2])
		return ""
	})
	var script strings.Builder
	used := map[string]bool{}
	ran := 0
	for _, block := range indented.FindAllString(text, -1) {
		block = regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")
		if strings.HasPrefix(block, needs) {
			t.Logf("not run:\n%s", block)
			continue
		}
		if !begins.MatchString(block) {
			keep("indented", block)
			continue
		}
		for i, command := range split(block) {
			if w.takesLong(command, used) && !*long {
				t.Logf("runs with -long: %s", command)
				continue
			}
			if i == 0 {
				fmt.Fprintf(&script, "cd $ROOT\n")
			}
			if before := match(w.blocks, command, used); before != "" {
				fmt.Fprintln(&script, before)
			}
			ran++
			fmt.Fprintln(&script, w.line(command, ran, used))
		}
	}
	if ran == 0 {
		t.Error("the page has no command that runs")
	}
	for _, begin := range slices.Concat(slices.Collect(maps.Keys(w.blocks)), slices.Collect(maps.Keys(w.servers)), w.long) {
		if !used[begin] {
			t.Errorf("the page has no command %q", begin)
		}
	}
	return script.String()
}

// line is the line of the script for a command.
func (w walk) line(command string, n int, used map[string]bool) string {
	filled := strings.NewReplacer(w.fill...).Replace(command)
	if request, ok := strings.CutPrefix(filled, "curl "); ok {
		filled = "curl -sS --fail-with-body " + request
	}
	said := fmt.Sprintf("cat <<'EOF'\n$ %s\nEOF\n", command)
	for begin, ready := range w.servers {
		if !strings.HasPrefix(command, begin) {
			continue
		}
		used[begin] = true
		filled, _, _ = strings.Cut(filled, " #")
		filled = fmt.Sprintf("serve $ROOT/%d.log %q %s", n, ready, strings.TrimSuffix(strings.TrimSpace(filled), "&"))
	}
	return said + filled
}

func (w walk) takesLong(command string, used map[string]bool) bool {
	i := slices.IndexFunc(w.long, func(begin string) bool { return strings.HasPrefix(command, begin) })
	if i >= 0 {
		used[w.long[i]] = true
	}
	return i >= 0
}

// match returns the entry of a table for a command.
func match(table map[string]string, command string, used map[string]bool) string {
	for begin, value := range table {
		if strings.HasPrefix(command, begin) {
			used[begin] = true
			return value
		}
	}
	return ""
}

// split splits a block into its commands. All other lines are outputs of commands.
func split(block string) (commands []string) {
	open := false
	for line := range strings.Lines(block) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case open:
			commands[len(commands)-1] += "\n" + line
		case begins.MatchString(line):
			commands = append(commands, line)
		default:
			continue
		}
		last := commands[len(commands)-1]
		if code, _, comment := strings.Cut(last, "  #"); comment {
			last = code
		}
		open = strings.HasSuffix(last, `\`) || strings.Count(last, "'")%2 == 1
	}
	return commands
}
