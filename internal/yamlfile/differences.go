package yamlfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Differences lists the values in which two files differ, such as "agent.timeout:
// 10s → 1m", in the order of the second file; what it lacks comes last. Files that say
// the same in another way have none.
func Differences(before, after []byte) ([]string, error) {
	old, _, err := flatten(before)
	if err != nil {
		return nil, err
	}
	now, order, err := flatten(after)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, name := range order {
		was, given := old[name]
		switch {
		case !given:
			list = append(list, fmt.Sprintf("%s: %s, which was not given", name, now[name]))
		case was != now[name]:
			list = append(list, fmt.Sprintf("%s: %s → %s", name, was, now[name]))
		}
		delete(old, name)
	}
	var gone []string
	for name, was := range old {
		gone = append(gone, fmt.Sprintf("%s: left out, was %s", name, was))
	}
	slices.Sort(gone)
	return append(list, gone...), nil
}

// flatten returns the values of a file by their paths, and the paths in its order.
func flatten(text []byte) (values map[string]string, order []string, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, nil, err
	}
	values = map[string]string{}
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(strings.TrimPrefix(path+"."+n.Content[i].Value, "."), n.Content[i+1])
			}
			return
		}
		values[path] = inline(n)
		order = append(order, path)
	}
	for _, n := range doc.Content {
		walk("", n)
	}
	return values, order, nil
}

// inline writes a value in one line.
func inline(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode, yaml.MappingNode:
		parts := make([]string, 0, len(n.Content))
		for i := 0; i < len(n.Content); i++ {
			part := inline(n.Content[i])
			if n.Kind == yaml.MappingNode && i+1 < len(n.Content) {
				i++
				part += ": " + inline(n.Content[i])
			}
			parts = append(parts, part)
		}
		if n.Kind == yaml.MappingNode {
			return "{" + strings.Join(parts, ", ") + "}"
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case yaml.AliasNode: // of no file that was read
		return "*" + n.Value
	default:
		return strings.ReplaceAll(n.Value, "\n", "\\n")
	}
}
