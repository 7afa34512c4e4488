package dashboard

import (
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// described are the operations of the API, "GET /runs/{}", with the names of their query parameters.
func described(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, name := range []string{"store-openapi.json", "extensions-openapi.json"} {
		text, err := os.ReadFile("../rest/server/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Paths map[string]map[string]struct {
				Parameters []struct {
					Name string `json:"name"`
					In   string `json:"in"`
				} `json:"parameters"`
			} `json:"paths"`
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		for path, methods := range doc.Paths {
			path = strings.TrimPrefix(regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "{}"), "/v1/agl")
			for method, operation := range methods {
				names := append([]string{}, found[strings.ToUpper(method)+" "+path]...)
				for _, p := range operation.Parameters {
					if p.In == "query" {
						names = append(names, p.Name)
					}
				}
				found[strings.ToUpper(method)+" "+path] = names
			}
		}
	}
	return found
}

// TestClient holds what the page asks the store for against the descriptions of the API. It reads the sources, so a path and its
// query are written as literals or as constants of the same file.
func TestClient(t *testing.T) {
	t.Parallel()
	operations, used := described(t), map[string]bool{}
	err := fs.WalkDir(files, "ui", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".js") || strings.HasPrefix(name, "ui/vendor/") {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		source := script(text)
		requests, err := source.requests(name == "ui/api.js")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, r := range requests {
			names, known := operations[r.operation]
			if !known {
				t.Errorf("%s: %s is in no description of the API", name, r.operation)
			}
			used[r.operation] = true
			for _, q := range r.query {
				if known && !slices.Contains(names, q) {
					t.Errorf("%s: %s has no parameter %q, only %q", name, r.operation, q, names)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, operation := range []string{"GET /events", "GET /rollouts", "GET /rollouts/search", "POST /rollouts/{}/cancel", "DELETE /rollouts/{}", "POST /releases/{}/{}", "GET /spans"} {
		if !used[operation] {
			t.Errorf("%s was not found in the sources of the page, only %q", operation, slices.Sorted(maps.Keys(used)))
		}
	}
}

// TestClientFindsMistakes makes sure that the check can fail.
func TestClientFindsMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"get(`releases/${encodeURIComponent(id)}/x`, {})":                                   "[{GET /releases/{}/x []}]",
		`const path = "a/" + encodeURIComponent(x);` + "\n" + `post(path + "/b", { c: 1 })`: "[{POST /a/{}/b []}]",
		`const q = { d };` + "\n" + `get("a", { b: [1, 2], "c": f({ x: 1 }), ...q })`:       "[{GET /a [b c d]}]",
		`get(somewhere)`:      "error",
		`get("a", somewhere)`: "error",
	} {
		requests, err := script(text).requests(false)
		if got := fmt.Sprint(requests); err == nil && got != want || (err != nil) != (want == "error") {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

// script is the source of a module.
type script string

type request struct {
	operation string
	query     []string
}

var (
	asks    = regexp.MustCompile(`(?:^|[^.\w])(?:(get|find|post|del|call)\(|new URL\("(login/oidc)", base)`)
	methods = map[string]string{"get": http.MethodGet, "find": http.MethodGet, "post": http.MethodPost, "del": http.MethodDelete}
)

// requests are those that the module makes. In the client, whose functions take a path from others, such paths are left out.
func (s script) requests(client bool) ([]request, error) {
	var found []request
	for _, at := range asks.FindAllStringSubmatchIndex(string(s), -1) {
		if at[4] >= 0 {
			found = append(found, request{operation: "GET /login/oidc"})
			continue
		}
		if strings.HasSuffix(string(s[:at[2]]), "function ") {
			continue
		}
		function, args := string(s[at[2]:at[3]]), arguments(string(s[at[1]:]))
		method, query := methods[function], ""
		switch {
		case function == "call":
			method = strings.Trim(args[0], `"`)
			args = args[1:]
			if _, after, ok := strings.Cut(args[len(args)-1], "params: {"); ok {
				query = "{" + after
			}
		case method == http.MethodGet && len(args) > 1 && function == "get":
			query = args[1]
		}
		if client && args[0] == "path" {
			continue
		}
		before := s[:at[0]]
		path, err := before.path(args[0])
		if err != nil {
			return nil, err
		}
		names, err := before.names(query)
		if err != nil {
			return nil, err
		}
		found = append(found, request{method + " /" + path, names})
	}
	return found, nil
}

var hole = regexp.MustCompile(`\$\{[^}]*\}`)

// path evaluates an expression; what is not known before is {}.
func (s script) path(expression string) (string, error) {
	var path strings.Builder
	for part := range strings.SplitSeq(expression, " + ") {
		part = strings.TrimSpace(part)
		switch {
		case strings.HasPrefix(part, `"`):
			path.WriteString(strings.Trim(part, `"`))
		case strings.HasPrefix(part, "`"):
			path.WriteString(hole.ReplaceAllString(strings.Trim(part, "`"), "{}"))
		case strings.HasPrefix(part, "encodeURIComponent("):
			path.WriteString("{}")
		default:
			value, err := s.constant(part)
			if err != nil {
				return "", err
			}
			if value, err = s.path(value); err != nil {
				return "", err
			}
			path.WriteString(value)
		}
	}
	return path.String(), nil
}

// names are those of the members of an object.
func (s script) names(object string) ([]string, error) {
	if object == "" {
		return nil, nil
	}
	body, ok := strings.CutPrefix(object, "{")
	if !ok {
		value, err := s.constant(object)
		if err != nil {
			return nil, err
		}
		return s.names(value)
	}
	var names []string
	for _, member := range arguments(body) {
		if other, ok := strings.CutPrefix(member, "..."); ok {
			more, err := s.names(other)
			if err != nil {
				return nil, err
			}
			names = append(names, more...)
			continue
		}
		name, _, _ := strings.Cut(member, ":")
		names = append(names, strings.Trim(name, `"`))
	}
	return names, nil
}

// constant is the text of what a name stands for at the end of the script.
func (s script) constant(name string) (string, error) {
	if !regexp.MustCompile(`^\w+$`).MatchString(name) {
		return "", fmt.Errorf("%s is neither a literal nor a constant", name)
	}
	declared := "const " + name + " = "
	at := strings.LastIndex(string(s), declared)
	if at < 0 {
		return "", fmt.Errorf("%s is no constant of the file", name)
	}
	value := string(s[at+len(declared):])
	if strings.HasPrefix(value, "{") {
		return value, nil
	}
	value, _, _ = strings.Cut(value, ";\n")
	return value, nil
}

// arguments are the parts between commas up to the bracket that closes the text.
func arguments(text string) (parts []string) {
	depth, from, quote := 0, 0, rune(0)
	add := func(to int) {
		if part := strings.TrimSpace(text[from:to]); part != "" {
			parts = append(parts, part)
		}
		from = to + 1
	}
	for i, c := range text {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case strings.ContainsRune("\"'`", c):
			quote = c
		case strings.ContainsRune("([{", c):
			depth++
		case strings.ContainsRune(")]}", c) && depth == 0:
			add(i)
			return parts
		case strings.ContainsRune(")]}", c):
			depth--
		case c == ',' && depth == 0:
			add(i)
		}
	}
	return parts
}
