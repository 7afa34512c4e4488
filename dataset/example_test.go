package dataset_test

import (
	"fmt"

	"github.com/agl-go/agl/dataset"
)

// The file begins with the lines
//
//	id,question,answer
//	1,12 times 7,84
func Example() {
	tasks, err := dataset.Open("testdata/tasks.csv", dataset.Options{
		Columns: []dataset.Column{{Name: "question"}, {Name: "answer", As: "want"}},
		Types:   map[string]dataset.Type{"answer": dataset.TypeNumber},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tasks.Close()
	for task, err := range tasks.Records() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(task)
	}
	// Output:
	// {"question":"12 times 7","want":84}
	// {"question":"9 plus 4","want":13}
}
