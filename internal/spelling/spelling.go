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

// distance returns the least number of insertions, deletions, replacements of a byte, and exchanges of two neighbours
// that turn a into b, each byte edited once (optimal string alignment; Damerau 1964).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
