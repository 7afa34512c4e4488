// Package spelling finds the word that was probably meant: a key of a file, a command, a flag.
//
//	spelling.Meant("workrs", []string{"workers", "stats"}) // "workers"
package spelling

// Meant returns the word that is nearest to what was written; empty if none is near: at three edits, or at half of what was
// written, it is another word.
func Meant(written string, words []string) string {
	best, least := "", min(3, (len(written)+1)/2)
	for _, word := range words {
		if d := distance(written, word); d < least {
			best, least = word, d
		}
	}
	return best
}

// distance returns the least number of insertions, deletions and replacements of a
// byte that turn a into b (Levenshtein 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
