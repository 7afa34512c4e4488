package driver

import (
	"strconv"
	"strings"
)

// EventID returns the id of an event in the database with this identity. A copy of the database has another identity,
// so it rejects ids of the original.
func EventID(identity string, number int64) string {
	return identity + "-" + strconv.FormatInt(number, 10)
}

// EventNumber is the reverse of EventID; ok is false for the id of another database.
func EventNumber(identity, id string) (number int64, ok bool) {
	digits, found := strings.CutPrefix(id, identity+"-")
	number, err := strconv.ParseInt(digits, 10, 64)
	return number, found && err == nil
}
