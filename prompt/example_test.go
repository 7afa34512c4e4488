package prompt_test

import (
	"fmt"
	"log"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/prompt"
)

func ExampleRender() {
	template := agl.PromptTemplate{Template: "Answer in {words} words: {question}", Engine: agl.PromptFString}
	text, err := prompt.Render(template, map[string]any{"question": "12 times 7", "words": 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output: Answer in 1 words: 12 times 7
}
