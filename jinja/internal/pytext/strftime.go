package pytext

import (
	"strings"
	"time"

	"github.com/ncruces/go-strftime"
)

// withoutZone drops the directives of the time zone, which are empty for a time without one.
var withoutZone = strings.NewReplacer("%%", "%%", "%z", "", "%Z", "")

// Strftime formats as strftime does in the C locale, for a time without a zone.
func Strftime(format string, t time.Time) string {
	return strftime.Format(withoutZone.Replace(format), t)
}
