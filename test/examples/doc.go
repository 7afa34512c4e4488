// Package examples runs each template of `agl init` and each example that is a run file, by the real agl command, with the real
// SDKs that setup.sh installs. It checks the exit code, the report, the rewards and tokens in the store, and whether anything
// was learned. It also runs the commands of the README and of the pages in docs, unchanged; those that take minutes with -long.
package examples
