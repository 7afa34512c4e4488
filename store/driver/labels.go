package driver

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Labels are the labels of a rollout, see [agl.Label]. SQL drivers keep Run and Step in an index and search Text,
// which has the same form in all of them.
type Labels struct {
	Run, Step agl.Null[string]
	// Text has a line for each label: its name and value as JSON strings. JSON strings contain no line breaks, so
	// Text contains a label's [LabelLine] only if the rollout has the label.
	Text string
}

// Bounds of the labels of a rollout, see [agl.Label]: how many, and the bytes of a name and of a value.
const (
	MaxLabels     = 64
	MaxLabelName  = 128
	MaxLabelValue = 256
)

// LabelsOf returns the labels in the metadata of a rollout.
func LabelsOf(metadata jsontext.Value) (l Labels) {
	if metadata.Kind() != '{' {
		return l
	}
	n := 0
	var text strings.Builder
	for raw, value := range rawjson.Members(metadata) {
		if n == MaxLabels {
			break
		}
		name, given, ok := rawjson.UnquoteName(raw), string(value), false
		switch jsontext.Value(value).Kind() {
		case '"':
			given, ok = rawjson.Unquote(value), true
		case '0', 't', 'f':
			ok = true
		}
		if !ok || name == "" || len(name) > MaxLabelName || len(given) > MaxLabelValue || strings.Contains(text.String(), labelName(name)) {
			continue // the first of several members with one name counts
		}
		n++
		text.WriteString(LabelLine(agl.Label{Name: name, Value: given}))
		switch name {
		case "run":
			l.Run = agl.Some(given)
		case "step":
			l.Step = agl.Some(given)
		}
	}
	l.Text = text.String()
	return l
}

// LabelLine returns the line of a label in [Labels].Text.
func LabelLine(l agl.Label) string {
	return string(append(rawjson.AppendString([]byte(labelName(l.Name)), l.Value), '\n'))
}

func labelName(name string) string {
	return string(append(rawjson.AppendString([]byte{'\n'}, name), ':'))
}

// Has reports whether the rollout has a label.
func (l *Labels) Has(label agl.Label) bool { return strings.Contains(l.Text, LabelLine(label)) }
