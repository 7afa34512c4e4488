// Command agent asks a model which of three digits is the largest.
//
// agl keeps it running: a line of JSON on standard input for each task, a line with the reward on standard output.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

// attempt is what agl sends for each task. Env holds the variables that a separate process would find in its environment.
type attempt struct {
	Task struct {
		Question string `json:"question"`
		Answer   string `json:"answer"`
	} `json:"task"`
	Env map[string]string `json:"env"`
}

// ask asks the model behind agl's proxy, which records the call with its tokens. With the seed that agl chose for this attempt, the
// same run gives the same result again.
func ask(env map[string]string, question string) (string, error) {
	body, err := json.Marshal(map[string]any{
		"model":      env["OPENAI_MODEL"],
		"messages":   []map[string]string{{"role": "user", "content": question}},
		"max_tokens": 4,
		"seed":       json.RawMessage(cmp.Or(env["AGL_SEED"], "null")),
	})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequest(http.MethodPost, env["OPENAI_BASE_URL"]+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+env["OPENAI_API_KEY"])
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var completion struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the model answers %s: %s", response.Status, reply)
	}
	if err := json.Unmarshal(reply, &completion); err != nil {
		return "", err
	}
	if len(completion.Choices) == 0 {
		return "", fmt.Errorf("the model answers nothing: %s", reply)
	}
	return completion.Choices[0].Message.Content, nil
}

// solve runs one task and returns its reward: 1 is right, 0 is wrong.
func solve(a attempt) (reward float64, err error) {
	answer, err := ask(a.Env, a.Task.Question)
	if err != nil {
		return 0, err
	}
	if answer == a.Task.Answer {
		return 1, nil
	}
	return 0, nil
}

func main() {
	lines, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // no more tasks come
		}
		var a attempt
		var reward float64
		if err = json.Unmarshal(line, &a); err == nil {
			reward, err = solve(a)
		}
		result := map[string]any{"reward": reward}
		if err != nil {
			result = map[string]any{"error": err.Error()} // the attempt has failed; the next one may not
		}
		if err := out.Encode(result); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
