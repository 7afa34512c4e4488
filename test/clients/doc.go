// Package clients runs the real SDKs of OpenAI and Anthropic, unmodified, in Python, Node and Go against the proxy in front
// of scripted model servers: every front end before every kind of backend. Those of Python and Node run where the
// environment says that they are installed; setup.sh does that.
package clients
