// Package trackers tests the metrics that runs write with the programs that read them: the tensorboard package and an MLflow
// server. The tests are behind the build tag trackers, because they install both; run them with make trackers.
package trackers
