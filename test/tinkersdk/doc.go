// Package tinkersdk drives the real `agl policy serve` with Tinker's official Python SDK, unmodified: the newest version, which
// speaks protobuf, and the last version that speaks JSON. Both must give the same results as the calls in this process, bit for
// bit. setup.sh installs them; without them the tests are skipped.
package tinkersdk
