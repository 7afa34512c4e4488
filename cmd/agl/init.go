package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/charmbracelet/x/term"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/homedir"
	"github.com/agl-go/agl/internal/terminal"
)

type initCommand struct {
	Template string `short:"t" enum:"python,typescript,go,shell,live" default:"python" help:"The agent's language: python, typescript, go or shell; or live, a service that learns from its users. Default: ${default}."`
	Dir      string `arg:"" optional:"" help:"The folder, created if it does not exist; . is the current one. Without it a terminal is asked."`
}

//go:embed templates
var templates embed.FS

// starter is the data of the templates, for a language.
type starter struct {
	Language string
	File     string // of the agent
	Needs    string // the program that runs it
	Agent    string // the run file's lines that start it
	Timeout  string // of an attempt, with the time that the program takes to start
	Build    string // compiles it before the first run, for all processes at once
}

// templateLive is the service that learns from its users.
const templateLive = "live"

// keptAgent has the lines for an agent that reads tasks from standard input.
const keptAgent = "  # The program is kept running: a line with a task in, a line with its result out.\n  keepalive: stdio\n"

// starters returns the languages.
func starters() map[string]starter {
	return map[string]starter{
		"python":     {"Python", "agent.py", "Python", "  command: [python3, agent.py]\n" + keptAgent, "60s", ""},
		"typescript": {"TypeScript", "agent.ts", "Node 22.18 or later", "  # Before Node 22.18: [node, --import, tsx, agent.ts], after npm install --save-dev tsx.\n  command: [node, agent.ts]\n" + keptAgent, "60s", ""},
		"go":         {"Go", "agent.go", "Go", "  command: [go, run, agent.go]\n" + keptAgent, "5m", "go build agent.go"},
		"shell":      {"shell", "agent.sh", "curl", "  # Started once for each attempt; what it needs is in its environment.\n  command: [sh, agent.sh]\n", "60s", ""},
	}
}

// suggestedDir is the default answer when the command asks for the folder.
const suggestedDir = "first"

func (c *initCommand) Validate() error {
	if c.Dir == "" && !term.IsTerminal(os.Stdin.Fd()) {
		return fmt.Errorf("name the folder to write to, such as %s, or . for the current one", suggestedDir)
	}
	if c.Dir == "" {
		return nil
	}
	return checkFolder(c.Dir)
}

// checkFolder refuses a folder that cannot be made, because it or a folder above it is a file.
func checkFolder(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case err == nil && info.IsDir(), at == filepath.Dir(at):
			return nil
		case err == nil && at == filepath.Clean(dir):
			return fmt.Errorf("%s is a file; name a folder", dir)
		case err == nil:
			return fmt.Errorf("%s: %s is a file, and no folder can be made in it; name another folder", dir, at)
		}
	}
}

// ask reads the folder from the terminal.
func (c *initCommand) ask(out *console.Console) error {
	if _, err := fmt.Fprintf(out.Err, "folder to write the example to [%s]: ", suggestedDir); err != nil {
		return fmt.Errorf("write to standard error: %w", err)
	}
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return fmt.Errorf("init: no folder was named: %w", err)
	}
	if c.Dir, err = homedir.Expand(cmp.Or(strings.TrimSpace(line), suggestedDir)); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

func (c *initCommand) run(_ context.Context, out *console.Console) error {
	if c.Dir == "" {
		if err := c.ask(out); err != nil {
			return err
		}
	}
	files, err := starterFiles(c.Template)
	if err != nil {
		return err
	}
	if err := writeStarter(c.Dir, files); err != nil {
		return err
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.name
	}
	next := commandName() + " train agl.yaml"
	if build := starters()[c.Template].Build; build != "" {
		next = build + " && " + next
	}
	if c.Template == templateLive {
		next = commandName() + " train live.yaml, and python3 shop.py and python3 customers.py beside it"
	}
	if filepath.Clean(c.Dir) != "." {
		next = "cd " + terminal.ShellWord(c.Dir) + " && " + next
	}
	return out.Printf("wrote %s\nnow: %s\n", strings.Join(names, ", "), next)
}

// starterFile is one file of an example; its name is relative to the folder.
type starterFile struct {
	name string
	data []byte
	mode fs.FileMode
}

// starterFiles returns the files of a template, sorted by name.
func starterFiles(language string) (files []starterFile, err error) {
	const regular, executable = 0o644, 0o755
	if language != templateLive { // which brings all of its own
		data := exampleData()
		files = []starterFile{{"train.jsonl", data.train, regular}, {"val.jsonl", data.val, regular}, {"demos.jsonl", data.demos, regular}}
		for _, name := range []string{"agl.yaml", "README.md"} {
			t, err := template.ParseFS(templates, "templates/"+name+".tmpl")
			if err != nil {
				return nil, err
			}
			var text bytes.Buffer
			if err := t.Execute(&text, starters()[language]); err != nil {
				return nil, err
			}
			files = append(files, starterFile{name, text.Bytes(), regular})
		}
	}
	folder := path.Join("templates", language)
	own, err := templates.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, f := range own {
		text, err := templates.ReadFile(path.Join(folder, f.Name()))
		if err != nil {
			return nil, err
		}
		var mode fs.FileMode = regular
		if bytes.HasPrefix(text, []byte("#!")) {
			mode = executable
		}
		files = append(files, starterFile{f.Name(), text, mode})
	}
	for i := range files {
		files[i].data = ownCommands.ReplaceAll(files[i].data, []byte(programName()+" $1"))
	}
	slices.SortFunc(files, func(a, b starterFile) int { return strings.Compare(a.name, b.name) })
	return files, nil
}

// ownCommands finds the commands of this program in a text for people.
var ownCommands = regexp.MustCompile(`\bagl (train|config)\b`)

// writeStarter writes the files into a folder, or none if one of them exists.
func writeStarter(dir string, files []starterFile) error {
	if err := checkFolder(dir); err != nil { // the flags were checked; what a person typed was not
		return fmt.Errorf("init: %w", err)
	}
	var there []string
	for _, f := range files {
		_, err := os.Lstat(filepath.Join(dir, f.name))
		switch {
		case err == nil:
			there = append(there, f.name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("init: %s: already in %s, so nothing was written; name another folder, or move them away", strings.Join(there, ", "), dir)
	}
	const dirMode = 0o755
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	for _, f := range files {
		// A file that has appeared since the check is not overwritten, either.
		file, err := os.OpenFile(filepath.Join(dir, f.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, f.mode)
		if err != nil {
			return err
		}
		_, err = file.Write(f.data)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// dataFiles are the JSON Lines files of the example, whose questions ask for the largest of three digits.
type dataFiles struct{ train, val, demos []byte }

const (
	exampleVal  = 120 // of 720 questions
	demosOfEach = 2
)

// exampleData makes the files, the same each time. No question of val is in the other files. A demonstration names any of
// the three digits, so that a model that imitates them is right in a third of the cases.
func exampleData() dataFiles {
	const digits = 10
	var questions [][3]int
	for a := range digits {
		for b := range digits {
			for c := range digits {
				if a != b && b != c && a != c {
					questions = append(questions, [3]int{a, b, c})
				}
			}
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	rng.Shuffle(len(questions), func(i, j int) { questions[i], questions[j] = questions[j], questions[i] })
	var train, val, demos bytes.Buffer
	for i, q := range questions {
		out := &val
		text := fmt.Sprintf("largest of %d %d %d?", q[0], q[1], q[2])
		if i >= exampleVal {
			out = &train
			for range demosOfEach {
				fmt.Fprintf(&demos, `{"messages": [{"role": "user", "content": "%s"}, {"role": "assistant", "content": "%d"}]}`+"\n", text, q[rng.IntN(len(q))])
			}
		}
		fmt.Fprintf(out, `{"question": "%s", "answer": "%d"}`+"\n", text, max(q[0], q[1], q[2]))
	}
	return dataFiles{train: train.Bytes(), val: val.Bytes(), demos: demos.Bytes()}
}
