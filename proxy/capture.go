package proxy

import "github.com/agl-go/agl"

// CaptureMode says what becomes of a call of an attempt whose record might not
// be kept.
type CaptureMode string

// The capture modes.
const (
	// CaptureRequire, the default, refuses new calls while there is no room for
	// their records, with 503 after Config.QueueTimeout, and reports records that
	// are lost nevertheless in every Flush of their attempt. It is what training
	// needs.
	CaptureRequire CaptureMode = "require"
	// CaptureBestEffort never refuses a call for its record and never fails a
	// Flush: what there is no room for is not recorded, which is logged.
	CaptureBestEffort CaptureMode = "best-effort"
	// CaptureOff records nothing.
	CaptureOff CaptureMode = "off"
)

func (m CaptureMode) check() error {
	switch m {
	case "", CaptureRequire, CaptureBestEffort, CaptureOff:
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "Capture: got %q, must be %s, %s or %s", m, CaptureRequire, CaptureBestEffort, CaptureOff)
}
