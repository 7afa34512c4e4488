package process

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/rewardjson"
)

// result is what a program reports about its attempt.
type result struct {
	rewards []agl.Reward
	err     string // what failed; empty if nothing did
	given   bool   // the program reported something
	instead string // what a kept process printed in place of a reply, for a message; else empty
}

// maxResult bounds a result file.
const maxResult = 1 << 20

// wantedResult describes a result in messages.
const wantedResult = `a JSON object with "reward", "rewards" or "error", such as {"reward": 0.7}`

// readResult reads a result file. A missing file reports nothing. Since the file has no other use, a number in it is
// the reward.
func (c *Config) readResult(f attemptFolder) (result, error) {
	data, err := c.readFile(f)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return result{}, nil
	case err != nil:
		return result{}, agl.Errorf(agl.CodeInvalid, "result file: %w", err)
	}
	text := trim(data)
	if number, ok := parseNumber(string(text)); ok {
		return primary(number), nil
	}
	r, err := parseLine(text)
	switch {
	case err != nil:
		return result{}, agl.Errorf(agl.CodeInvalid, "result file: %w", err)
	case !r.given:
		return result{}, agl.Errorf(agl.CodeInvalid, "result file: got %.100q, must be "+wantedResult, data)
	}
	return r, nil
}

func (c *Config) readFile(f attemptFolder) ([]byte, error) {
	dir := os.DirFS(f.root)
	if c.User != nil { // who may have made a link to what only this process can read
		root, err := os.OpenRoot(f.root)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		dir = root.FS()
	}
	info, err := fs.Stat(dir, resultFile)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxResult {
		return nil, agl.Errorf(agl.CodeInvalid, "got %d bytes (%s), must be a file of at most %d", info.Size(), info.Mode(), maxResult)
	}
	return fs.ReadFile(dir, resultFile)
}

// printedResult reads the result from standard output: from its last line, from an object of several lines at its end or, if that
// is something else, from the only earlier line that reports a reward.
func printedResult(stdout *output) (result, error) {
	output, dropped := stdout.end()
	limit := len(output)
	output = trim(output)
	end := bytes.LastIndexByte(output, '\n') + 1
	if end == 0 && dropped > 0 && isCutResult(stdout.head[bytes.LastIndexByte(stdout.head, '\n')+1:], output) {
		return result{}, agl.Errorf(agl.CodeInvalid, "last line of standard output: got a result of which the middle is lost, must have at most %d bytes; leave out what the reward does not need", limit)
	}
	before, last := output[:end], output[end:]
	if object := printedObject(output); object != nil {
		switch r, err := parseResult(object); {
		case err != nil:
			return result{}, agl.Errorf(agl.CodeInvalid, "last lines of standard output: %w", err)
		case r.given:
			return r, nil
		}
		before, last = output[:len(output)-len(object)], object // what is within it is no result
	} else if dropped > 0 && bytes.HasSuffix(output, []byte("\n}")) && !bytes.Contains(output, []byte("\n{")) {
		before = nil // all of it is within an object whose beginning is lost
	}
	r, err := parseLine(last)
	if err != nil {
		return result{}, agl.Errorf(agl.CodeInvalid, "last line of standard output: %w", err)
	}
	if r.given {
		return r, nil
	}
	found := 0
	for line := range bytes.Lines(before) {
		// Earlier lines without a result, or with an error, are ordinary output.
		if earlier, err := parseLine(bytes.TrimSpace(line)); err == nil && len(earlier.rewards) > 0 {
			found++
			r = earlier
		}
	}
	if found > 1 {
		return result{}, agl.Errorf(agl.CodeInvalid,
			"standard output: %d lines report a reward, and the last line, %.100q, is none of them; print the result that counts last", found, last)
	}
	return r, nil
}

// printedObject returns the object of several lines with which output ends, as jq and json.dumps(…, indent=2) print one; nil if there is none.
func printedObject(output []byte) []byte {
	if !bytes.HasSuffix(output, []byte("\n}")) {
		return nil
	}
	object := output[bytes.LastIndex(output, []byte("\n{"))+1:]
	if !jsontext.Value(object).IsValid(rawjson.Options()) {
		return nil
	}
	return object
}

// trim returns text without the spaces around it and the byte order mark before it, with which programs on Windows begin a
// file or their output.
func trim(text []byte) []byte { return bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff"))) }

// IsReward reports whether a line of output reports a reward.
func IsReward(line string) bool {
	r, err := parseLine([]byte(strings.TrimSpace(line)))
	return err == nil && len(r.rewards) > 0
}

var (
	// rewardText matches a reward that is written as text; see parseLine.
	rewardText = regexp.MustCompile(`^(?i)["']?reward["']?\s*[:=]\s*(.*)$`)
	// rewardMember matches a member with a reward, in JSON and in what people mistake for JSON.
	rewardMember = regexp.MustCompile(`(?i)[{,\s"']rewards?["']?\s*[:=]`)
)

var (
	// rewardFirst matches an object in which only texts and numbers, such as attempt_id, come before a result.
	rewardFirst = regexp.MustCompile(`(?i)^\s*\{(\s*"[^"\\]*"\s*:\s*("[^"\\]*"|[^{}\[\]",]*)\s*,)*\s*(["']rewards?["']\s*:|"error"\s*:\s*")`)
	rewardLast  = regexp.MustCompile(`(?i)[{,\s]["']rewards?["']\s*:\s*(\{[^{}]*\}|[^{}\[\]]*)\}\s*$`)
)

// isCutResult reports whether a line of which only the start and the end are known was meant as a result: an object that begins
// with one or ends with a reward. Rewards within it are those of a log.
func isCutResult(start, end []byte) bool {
	const seen = 4 << 10
	return rewardFirst.Match(start[:min(len(start), seen)]) || rewardLast.Match(end[max(len(end)-seen, 0):])
}

// parseLine reads a line that may be a result: a JSON object, or "reward: 0.7". A line that is meant to report a
// reward but cannot be read is an error; any other line reports nothing.
func parseLine(line []byte) (result, error) {
	switch {
	case bytes.HasPrefix(line, []byte("{")):
		if jsontext.Value(line).IsValid(rawjson.Options()) {
			return parseResult(line)
		}
		if rewardMember.Match(line) {
			return result{}, agl.Errorf(agl.CodeInvalid, "got %.100q, which is not JSON; must be "+wantedResult, line)
		}
	case rewardText.Match(line):
		text := string(rewardText.FindSubmatch(line)[1])
		switch strings.ToLower(text) { // as print("reward:", reply == answer) writes it in Python
		case "true":
			return primary(1), nil
		case "false":
			return primary(0), nil
		}
		number, ok := parseNumber(text)
		if !ok {
			return result{}, agl.Errorf(agl.CodeInvalid, "got %.100q, which has no finite number; must be "+wantedResult, line)
		}
		return primary(number), nil
	}
	return result{}, nil
}

// parseNumber reads a finite decimal number.
func parseNumber(text string) (number float64, ok bool) {
	number, err := strconv.ParseFloat(text, 64)
	return number, err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) && !strings.ContainsAny(text, "xX_")
}

// primary returns a result with one reward.
func primary(number float64) result {
	return result{rewards: []agl.Reward{{Name: "primary", Value: number}}, given: true}
}

// parseResult reads an object: {"reward": …}, {"rewards": {…}} or {"error": …}. It ignores other members.
func parseResult(object []byte) (result, error) {
	var r result
	for member, value := range agl.Attributes(object).All() {
		if err := r.readMember(member, value); err != nil {
			return result{}, err
		}
	}
	if r.given && len(r.rewards) == 0 && r.err == "" {
		r.err = "the agent gives no reason" // such as str(AssertionError())
	}
	return r, nil
}

func (r *result) readMember(member string, value jsontext.Value) error {
	if value.Kind() == 'n' {
		return nil // as if it were absent
	}
	switch strings.ToLower(member) {
	case "error":
		r.given = true
		if value.Kind() != '"' {
			return agl.Errorf(agl.CodeInvalid, "error: got %.100s, must be a string", value)
		}
		return rawjson.Unmarshal(value, &r.err)
	case "reward":
		number, err := rewardjson.Value("reward", value)
		if err != nil {
			return err
		}
		return r.add("reward", agl.Reward{Name: "primary", Value: number})
	case "rewards":
		rewards, err := rewardjson.Dimensions("rewards", value)
		for i := 0; i < len(rewards) && err == nil; i++ {
			err = r.add("rewards."+rewards[i].Name, rewards[i])
		}
		if err == nil && len(r.rewards) == 0 {
			err = agl.Errorf(agl.CodeInvalid, "rewards: got {}, must have at least one dimension")
		}
		return err
	}
	return nil
}

// add adds a dimension of the reward.
func (r *result) add(field string, one agl.Reward) error {
	r.given = true
	if slices.ContainsFunc(r.rewards, func(known agl.Reward) bool { return known.Name == one.Name }) {
		return agl.Errorf(agl.CodeInvalid, "%s: the dimension %q is given twice", field, one.Name)
	}
	r.rewards = append(r.rewards, one)
	return nil
}
