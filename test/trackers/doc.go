// Package trackers holds what runs write for people to look at against the programs that they look with: the tensorboard package
// and an MLflow server. The tests are behind the build tag trackers, because they install both; run them with make trackers.
package trackers
