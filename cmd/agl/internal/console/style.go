package console

import (
	"charm.land/lipgloss/v2"

	"github.com/agl-go/agl"
)

// The styles of text on a terminal. Callers must not change them.
var (
	Faint  = lipgloss.NewStyle().Faint(true)
	Strong = lipgloss.NewStyle().Bold(true)
	Good   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	Bad    = lipgloss.NewStyle().Foreground(lipgloss.Red)
)

// Status colours the status of a rollout, an attempt or a span.
func Status(status string) string { return statusStyle(status).Render(status) }

func statusStyle(status string) lipgloss.Style {
	switch status {
	case string(agl.RolloutSucceeded):
		return Good
	case string(agl.RolloutFailed), string(agl.RolloutCancelled), string(agl.AttemptTimeout), string(agl.AttemptUnresponsive), string(agl.StatusError):
		return Bad
	default:
		return lipgloss.NewStyle()
	}
}
