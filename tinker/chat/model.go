package chat

import "github.com/agl-go/agl/tinker"

// Model is what a server serves under a name.
type Model struct {
	// Client samples the tokens.
	Client tinker.SamplingClient
	// Version is sent with every reply as system_fingerprint; empty leaves it out.
	Version string
}
