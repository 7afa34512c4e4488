// Package tinkersdk drives the real `agl policy serve` with Tinker's official Python SDK, unmodified: the newest, which
// speaks protobuf, and the last that speaks JSON. Both must give what the same calls give in this process, bit for bit. It
// runs where the environment says that they are installed; setup.sh does that.
package tinkersdk
