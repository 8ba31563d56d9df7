// Package trommeltest runs Trommel's plans in Go tests: beside an operator's other tests, with go test.
//
//	func TestCrash(t *testing.T) {
//		suite := trommeltest.Suite(t, "trommel.yaml")
//		suite.RunFile(t, "plans/crash.yaml")
//	}
//
// [Suite] reads a suite, [New] takes one that was built in Go, and [FromEnvtest] makes one of the definitions that a
// test with envtest has. [Harness.Run] runs a plan as package plan/build makes it, [Harness.RunFile] one in a file. The
// first run builds the suite's controllers with Trommel's hooks, and starts a control plane: etcd, several API servers,
// a controller manager, a scheduler and nodes, all as local processes. It needs neither Docker nor root nor network
// access, but Go and, for the first build of the control plane, minutes; `trommel build --control-plane` does that
// beforehand.
//
// # Verdicts
//
// A pass lets the test go on. A bug is an Error: the test fails, with what was found and with the difference, and goes
// on, so that it can look at the [Result]. A run that is inconclusive, because it was not what its plan describes, is
// Fatal with the reason, and so is whatever could not run. [Expect] is for plans that are known to find a bug. If the
// only bug is that the workload failed, the workload runs once more without the plan's actions. If it fails in the same
// way, the run is inconclusive.
//
// The result has the findings, the verdict, and the history: every state of the recorded objects.
//
//	r := suite.RunFile(t, "plans/crash.yaml", trommeltest.Expect(trommeltest.Bug, "one-password-per-cache"))
//	if n := len(r.History("secret/default/*")); n != 2 { … }
//
// # Workloads
//
// A workload does what a user of the controllers would do. Those of the suite are lists of steps. [Harness.Workload],
// [Harness.WorkloadREST] and [WorkloadWith] add Go functions, which talk to a real API server with client-go, or with
// any other client, such as controller-runtime's.
//
// # What has hooks
//
// The controllers run as processes of their own, and only these have hooks: Trommel builds them from their unchanged
// source. The process of the test has none. A request of the test itself, as a client, satisfies a plan's triggers only
// where an API server or a controller is seen to receive it. A controller that a test starts within its own process, as
// envtest's users do with a manager, is not seen by plans at all: name its main package instead, see [Controller].
//
// # Clusters
//
// The tests of a package share a cluster for each suite and variant; it is reset before each run. [Fresh] starts one
// for each run. Tests that call t.Parallel run at the same time, each on a cluster of its own, as far as there are
// cores and memory for them: one cluster for each core, and 1.6 GB of memory for each. The others wait.
// The flag -trommel.parallel sets another limit. Several packages are several processes, which do not know of each
// other: on a small machine run them with go test -p 1.
//
// The clusters end with the process of the tests, whether it returns, panics, calls os.Exit, exceeds its time limit or
// is killed. [Main] stops them in an orderly way.
//
// # Records
//
// The record of a run is a directory in .trommel/<test>, in the package's directory. It is kept if the test fails, and
// the log says where it is and how to look at it. With -trommel.keep it is always kept, and -trommel.dir is another
// place. These flags are only known to packages that use trommeltest:
//
//	go test ./plans -run TestCrash -v -trommel.keep
//
// With -v the log shows the run's progress. With -short such tests are skipped. A run ends before the deadline of its
// test: go test's -timeout, which is ten minutes by default, must include the builds.
package trommeltest
