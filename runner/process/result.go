package process

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// result is what a program reports about its attempt.
type result struct {
	rewards []agl.Reward
	err     string // what failed; empty for nothing
	given   bool   // it reports anything
}

// maxResult bounds a result file.
const maxResult = 1 << 20

// readResult reads a result file. One that does not exist reports nothing.
func readResult(path string) (result, error) {
	data, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return result{}, nil
	case err != nil:
		return result{}, agl.Errorf(agl.CodeInvalid, "result file: %w", err)
	}
	r, err := parseResult(data)
	switch {
	case err != nil:
		return result{}, agl.Errorf(agl.CodeInvalid, "result file: %w", err)
	case !r.given:
		return result{}, agl.Errorf(agl.CodeInvalid, `result file: got %.100q, must be a JSON object with "reward", "rewards" or "error"`, data)
	}
	return r, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxResult {
		return nil, agl.Errorf(agl.CodeInvalid, "got %d bytes (%s), must be a file of at most %d", info.Size(), info.Mode(), maxResult)
	}
	return os.ReadFile(path)
}

// lastLine reads the result from the last line of standard output. A line that is something else reports nothing.
func lastLine(output []byte) (result, error) {
	output = bytes.TrimRight(output, " \t\r\n")
	line := output[bytes.LastIndexByte(output, '\n')+1:]
	if len(line) == 0 || line[0] != '{' || !jsontext.Value(line).IsValid(rawjson.Options()) {
		return result{}, nil
	}
	r, err := parseResult(line)
	if err != nil {
		return result{}, agl.Errorf(agl.CodeInvalid, "last line of standard output: %w", err)
	}
	return r, nil
}

// parseResult reads {"reward": …}, {"rewards": {…}} or {"error": …}. It ignores other members.
func parseResult(data []byte) (result, error) {
	if value := jsontext.Value(data); !value.IsValid(rawjson.Options()) || value.Kind() != '{' {
		return result{}, agl.Errorf(agl.CodeInvalid, `got %.100q, must be a JSON object with "reward", "rewards" or "error"`, data)
	}
	var r result
	for member, value := range agl.Attributes(data).All() {
		if err := r.take(member, value); err != nil {
			return result{}, err
		}
	}
	return r, nil
}

func (r *result) take(member string, value jsontext.Value) error {
	if value.Kind() == 'n' {
		return nil // as if it were absent
	}
	switch member {
	case "error":
		r.given = true
		if value.Kind() != '"' {
			return agl.Errorf(agl.CodeInvalid, "error: got %.100s, must be a string", value)
		}
		return rawjson.Unmarshal(value, &r.err)
	case "reward":
		return r.reward("reward", "primary", value)
	case "rewards":
		if value.Kind() != '{' {
			return agl.Errorf(agl.CodeInvalid, "rewards: got %.100s, must be an object of numbers", value)
		}
		return r.dimensions(value)
	}
	return nil
}

func (r *result) dimensions(value jsontext.Value) error {
	for dimension, number := range agl.Attributes(value).All() {
		if err := r.reward("rewards."+dimension, dimension, number); err != nil {
			return err
		}
	}
	if len(r.rewards) == 0 {
		return agl.Errorf(agl.CodeInvalid, "rewards: got {}, must have at least one dimension")
	}
	return nil
}

func (r *result) reward(field, dimension string, value jsontext.Value) error {
	r.given = true
	var number float64
	if err := rawjson.Unmarshal(value, &number); value.Kind() != '0' || err != nil {
		return agl.Errorf(agl.CodeInvalid, "%s: got %.100s, must be a finite number", field, value)
	}
	for i := range r.rewards {
		if r.rewards[i].Name == dimension {
			return agl.Errorf(agl.CodeInvalid, "%s: the dimension %q is given twice", field, dimension)
		}
	}
	r.rewards = append(r.rewards, agl.Reward{Name: dimension, Value: number})
	return nil
}
