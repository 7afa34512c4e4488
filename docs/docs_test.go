// Package docs_test holds the pages of this project to its code: links lead
// somewhere, and the commands, flags, keys of run files, make targets, environment
// variables, packages, identifiers and tests that a page names exist.
package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const root = ".."

// page is a Markdown file. code holds its code spans and the lines of its code
// blocks; text is everything outside of blocks.
type page struct {
	path   string // from root
	text   string
	code   []string
	blocks []string
}

var (
	fence = regexp.MustCompile("^\\s*```")
	span  = regexp.MustCompile("`([^`]+)`")
)

// pages returns every page but CHANGELOG.md, which names what has been removed.
func pages(t *testing.T) []page {
	t.Helper()
	var out []page
	walk(t, func(path string) {
		if filepath.Ext(path) == ".md" && filepath.Base(path) != "CHANGELOG.md" {
			out = append(out, readPage(t, path))
		}
	})
	if len(out) < 20 {
		t.Fatalf("found only %d pages", len(out))
	}
	return out
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	p := page{path: path}
	fenced, inBlock := false, false
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSuffix(line, "\n")
		indented, isIndented := strings.CutPrefix(line, "    ")
		switch {
		case fence.MatchString(line):
			fenced, inBlock = !fenced, false
			continue
		case !fenced && !isIndented:
			p.text += line + "\n"
			inBlock = false
			continue
		case !fenced:
			line = indented
		}
		p.code = append(p.code, line)
		if !inBlock {
			p.blocks = append(p.blocks, "")
		}
		p.blocks[len(p.blocks)-1] += line + "\n"
		inBlock = true
	}
	for _, match := range span.FindAllStringSubmatch(p.text, -1) {
		p.code = append(p.code, match[1])
	}
	return p
}

// walk calls f for every file of the project, with its path from root.
func walk(t *testing.T, f func(path string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "shared"):
			return fs.SkipDir
		case !d.IsDir():
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, p := range pages(t) {
		text := span.ReplaceAllString(p.text, "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := p.path
			if target != "" {
				file = filepath.Join(filepath.Dir(p.path), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s, which does not exist", p.path, match[1])
				continue
			}
			if anchor == "" {
				continue
			}
			var anchors []string
			for _, h := range heading.FindAllStringSubmatch(readPage(t, file).text, -1) {
				anchors = append(anchors, slug(h[1]))
			}
			if !slices.Contains(anchors, anchor) {
				t.Errorf("%s links to %s, but %s has no such heading: %q", p.path, match[1], file, anchors)
			}
		}
	}
}

// slug is the anchor that GitHub gives a heading.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', r >= 'a' && r <= 'z', r >= '0' && r <= '9', r > 127:
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// TestViews requires that docs/dashboard.md explains every view of the dashboard.
func TestViews(t *testing.T) {
	t.Parallel()
	text := readPage(t, "docs/dashboard.md").text
	views := regexp.MustCompile(`\{ path: "[a-z]*", name: "(\w+)"`).FindAllStringSubmatch(source(t, "dashboard/ui/app.js"), -1)
	if len(views) < 5 {
		t.Fatalf("found only %d views", len(views))
	}
	for _, view := range views {
		if !strings.Contains(text, "- **"+view[1]+"**: ") {
			t.Errorf("docs/dashboard.md does not explain the view %s", view[1])
		}
	}
}

func TestMakeTargets(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	verb := regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`)
	for _, p := range pages(t) {
		for _, code := range p.code {
			for _, match := range verb.FindAllStringSubmatch(code, -1) {
				if !regexp.MustCompile(`(?m)^` + match[1] + `:`).Match(makefile) {
					t.Errorf("%s: the Makefile has no target %s: %s", p.path, match[1], code)
				}
			}
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds the command, and has one goroutine")
	}
	binary := filepath.Join(t.TempDir(), "agl")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../cmd/agl").CombinedOutput(); err != nil {
		t.Fatalf("build agl: %v\n%s", err, out)
	}
	t.Run("flags", func(t *testing.T) { t.Parallel(); checkFlags(t, binary) })
	t.Run("run files", func(t *testing.T) { t.Parallel(); checkRunFiles(t, binary) })
}

// checkFlags compares the command lines and flags of the pages with what
// agl --help prints.
func checkFlags(t *testing.T, binary string) {
	t.Helper()
	commands := commandFlags(t, binary)
	all := goFlags(t)
	for _, flags := range commands {
		for _, flag := range flags {
			all[flag] = true
		}
	}
	words := make(map[string]bool) // the first words of commands
	for name := range commands {
		first, _, _ := strings.Cut(name, " ")
		words[first] = true
	}
	line := regexp.MustCompile(`(?:^|\./|[\s;|&(])agl(?:-go)? ([a-z-]+(?: [a-z]+)?)([^|;&#]*)`)
	flag := regexp.MustCompile(`(?:^|\s)--([a-z][a-z-]*)`)
	for _, p := range pages(t) {
		for _, code := range p.code {
			for _, match := range line.FindAllStringSubmatch(code, -1) {
				name, rest := match[1], match[2]
				first, second, _ := strings.Cut(name, " ")
				if _, ok := commands[name]; !ok {
					name, rest = first, second+rest
				}
				flags, ok := commands[name]
				if !ok {
					if !words[first] {
						t.Errorf("%s: there is no command agl %s: %s", p.path, first, code)
					}
					continue
				}
				rest, _, _ = strings.Cut(rest, " -- ")
				for _, used := range flag.FindAllStringSubmatch(rest, -1) {
					if !slices.Contains(flags, used[1]) {
						t.Errorf("%s: agl %s has no flag --%s: %s", p.path, name, used[1], code)
					}
				}
			}
		}
		if p.path == "docs/engines.md" {
			continue // flags of other projects
		}
		for _, match := range span.FindAllStringSubmatch(p.text, -1) {
			if used := flag.FindStringSubmatch(match[1]); used != nil && strings.HasPrefix(match[1], "--") && !all[used[1]] {
				t.Errorf("%s: no command has the flag --%s", p.path, used[1])
			}
		}
	}
}

// checkRunFiles checks the keys and words in the run files, and in the parts of
// run files, that the pages show. Files that they name need not exist.
func checkRunFiles(t *testing.T, binary string) {
	t.Helper()
	isRunFile := regexp.MustCompile(`^(?:#.*\n)?(?:agent|data|prompts|engine|algorithm|store):`)
	isProxyFile := regexp.MustCompile(`^(?:listen|models):`)
	wrong := regexp.MustCompile(`: unknown|: got |not YAML`)
	checked := 0
	for _, p := range pages(t) {
		for _, block := range p.blocks {
			args := []string{"config", "check"}
			switch {
			case isProxyFile.MatchString(block):
				args = append(args, "--proxy")
			case !isRunFile.MatchString(block):
				continue
			}
			checked++
			file := filepath.Join(t.TempDir(), "agl.yaml")
			if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			out, _ := exec.CommandContext(t.Context(), binary, append(args, file)...).CombinedOutput() // it fails for what the page leaves out
			for line := range strings.Lines(string(out)) {
				if wrong.MatchString(line) {
					t.Errorf("%s: %s%s", p.path, strings.TrimPrefix(line, file), block)
				}
			}
		}
	}
	if checked < 10 {
		t.Fatalf("found only %d run files", checked)
	}
}

// commandFlags returns the flags of every command of agl.
func commandFlags(t *testing.T, binary string) map[string][]string {
	t.Helper()
	help := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), binary, append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("agl %s --help: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	_, list, _ := strings.Cut(help(), "Commands:\n")
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z][a-z-]*)`)
	out := make(map[string][]string)
	for _, match := range regexp.MustCompile(`(?m)^  ([a-z]+(?: [a-z]+)?)  `).FindAllStringSubmatch(list, -1) {
		for _, used := range flag.FindAllStringSubmatch(help(strings.Fields(match[1])...), -1) {
			out[match[1]] = append(out[match[1]], used[1])
		}
	}
	if len(out) < 20 {
		t.Fatalf("agl --help names only %d commands", len(out))
	}
	return out
}

// goFlags returns the flags of the examples, benchmarks and suites.
func goFlags(t *testing.T) map[string]bool {
	t.Helper()
	out := make(map[string]bool)
	declared := regexp.MustCompile(`\.(?:String|Int|Int64|Uint64|Float64|Bool|Duration|Func|TextVar|BoolFunc|(?:String|Int|Int64|Uint64|Float64|Bool|Duration)Var)\((?:&[\w.]+, )?"([a-z][a-z-]*)"`)
	tagged := regexp.MustCompile("(?m)^\\s+([A-Z]\\w*)\\s+[\\w.\\[\\]]+\\s+`.*help:")
	walk(t, func(path string) {
		if filepath.Ext(path) != ".go" {
			return
		}
		for _, match := range declared.FindAllStringSubmatch(source(t, path), -1) {
			out[match[1]] = true
		}
		for _, match := range tagged.FindAllStringSubmatch(source(t, path), -1) {
			out[strings.ToLower(match[1])] = true
		}
	})
	return out
}

var sources sync.Map // of texts, by path

func source(t *testing.T, path string) string {
	t.Helper()
	if text, ok := sources.Load(path); ok {
		return text.(string)
	}
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	sources.Store(path, string(content))
	return string(content)
}

// TestNames looks for the environment variables, metrics, test functions, paths
// and Go identifiers of the pages in the sources.
func TestNames(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
	var all strings.Builder
	walk(t, func(path string) {
		switch filepath.Ext(path) {
		case ".go", ".py", ".sh", ".service":
			if !strings.HasPrefix(path, "docs/") {
				all.WriteString(source(t, path))
			}
		}
	})
	text := all.String()
	names := declarations(t)
	literal := regexp.MustCompile(`\b(?:AGL_[A-Z_]*[A-Z]|Test[A-Z]\w+)\b`)
	path := regexp.MustCompile(`^[a-z][\w.-]*(?:/[\w.-]+)+$`)
	identifier := regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*(?:\.[A-Z]\w*)?)(?:\(\))?$`)
	top, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		for _, code := range p.code {
			for _, name := range literal.FindAllString(code, -1) {
				if !strings.Contains(text, name) && !strings.HasPrefix(name, "AGL_PROMPT_") && !strings.Contains(code, "env:"+name) {
					t.Errorf("%s: no source names %s: %s", p.path, name, code)
				}
			}
			if match := identifier.FindStringSubmatch(code); match != nil {
				python := p.path == "docs/from-agent-lightning.md" && match[1] == "agl"
				if known, ok := names[match[1]]; ok && !python && !known[match[2]] {
					t.Errorf("%s: package %s has no %s", p.path, match[1], match[2])
				}
			}
			first, _, _ := strings.Cut(code, "/")
			isTop := slices.ContainsFunc(top, func(e os.DirEntry) bool { return e.IsDir() && e.Name() == first })
			if path.MatchString(code) && isTop {
				if _, err := os.Stat(filepath.Join(root, code)); err != nil && !strings.HasPrefix(p.path, first) {
					t.Errorf("%s: there is no %s", p.path, code)
				}
			}
		}
	}
}

// TestPackages requires that docs/architecture.md names every package that others
// can import.
func TestPackages(t *testing.T) {
	t.Parallel()
	named := readPage(t, "docs/architecture.md").code
	seen := make(map[string]bool)
	walk(t, func(path string) {
		dir := filepath.Dir(path)
		first, _, _ := strings.Cut(dir, "/")
		switch {
		case filepath.Ext(path) != ".go", strings.HasSuffix(path, "_test.go"), seen[dir], dir == ".",
			strings.Contains("/"+dir+"/", "/internal/"), slices.Contains([]string{"bench", "cmd", "examples", "test"}, first):
			return
		}
		seen[dir] = true
		if !slices.Contains(named, dir) {
			t.Errorf("docs/architecture.md does not name the package %s", dir)
		}
	})
}

// declarations returns the exported names of every package by the package's
// name: functions, types, variables, and fields and methods as Type.Name.
// Packages of one name are taken together.
func declarations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := make(map[string]map[string]bool)
	walk(t, func(path string) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source(t, path), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		known := out[file.Name.Name]
		if known == nil {
			known = make(map[string]bool)
			out[file.Name.Name] = known
		}
		for _, decl := range file.Decls {
			declared(decl, known)
		}
	})
	return out
}

func declared(decl ast.Decl, known map[string]bool) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name := decl.Name.Name
		if decl.Recv != nil {
			name = receiver(decl.Recv.List[0].Type) + "." + name
		}
		known[name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					known[name.Name] = true
				}
			case *ast.TypeSpec:
				known[spec.Name.Name] = true
				members(spec, known)
			}
		}
	}
}

func members(spec *ast.TypeSpec, known map[string]bool) {
	var fields *ast.FieldList
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			known[fmt.Sprintf("%s.%s", spec.Name.Name, name.Name)] = true
		}
	}
}

func receiver(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiver(expr.X)
	case *ast.IndexExpr:
		return receiver(expr.X)
	case *ast.IndexListExpr:
		return receiver(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return ""
}

// TestStatements holds the table of the design documents: every statement has a row,
// and the tests of stores that rows name are there. Other tests are TestNames' concern.
func TestStatements(t *testing.T) {
	t.Parallel()
	p := readPage(t, "docs/design-documents.md")
	if n := len(regexp.MustCompile(`(?m)^\| \d+ \|`).FindAllString(p.text, -1)); n != 178 {
		t.Errorf("%d statements, want 178", n)
	}
	var suites strings.Builder
	files, err := filepath.Glob(filepath.Join(root, "store/storetest/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		suites.Write(content)
	}
	named := 0
	for _, code := range p.code {
		if test, ok := strings.CutPrefix(code, "storetest: "); ok {
			named++
			if !strings.Contains(suites.String(), fmt.Sprintf("a.test(%q", test)) {
				t.Errorf("there is no test of stores %q", test)
			}
		}
	}
	if named < 50 {
		t.Errorf("found only %d tests of stores", named)
	}
}
