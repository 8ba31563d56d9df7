// Package points says where hooks go and what is inserted there, and patches copies of modules and files of the
// standard library accordingly.
//
// The table of points has the places, the templates in this directory have the code. Text is inserted at positions
// found in the syntax tree, and everything else stays byte for byte. A point that is not found is an error.
package points

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// Modules that are patched.
const (
	ClientGo          = "k8s.io/client-go"
	ControllerRuntime = "sigs.k8s.io/controller-runtime"
	APIServer         = "k8s.io/apiserver"
	APIExtensions     = "k8s.io/apiextensions-apiserver"
	Kubernetes        = "k8s.io/kubernetes"         // of the control plane
	KWOK              = "sigs.k8s.io/kwok"          // of the control plane
	APIMachinery      = "k8s.io/apimachinery"       // of the control plane
	Aggregator        = "k8s.io/kube-aggregator"    // of the control plane
	Etcd              = "go.etcd.io/etcd/server/v3" // of the control plane
	Reflect2          = "github.com/modern-go/reflect2"
)

// ControlPlaneModules lists the modules that are patched in the control plane.
var ControlPlaneModules = []string{
	ClientGo, APIServer, APIExtensions, Kubernetes, KWOK, APIMachinery, Aggregator, Etcd,
}

// point is a place in a module with the text that is inserted there. Each point needs a golden file, see TestPatch.
type point struct {
	module   string
	from, to string     // versions: from ≤ v < to; an empty bound is open
	observes wire.Point // empty: nothing is observed; the point only adapts the process to this environment

	file     string // slash separated, inside the module
	receiver string // *T or T, without type parameters
	function string // or the name of a type, for field
	insert   insertion
}

// insertion is what happens at a point; exactly one of its fields is set. Text stays on one line, so that the lines
// after it keep their numbers. In templates .Receiver is the receiver's name, .Args the names of the parameters in
// order, as a call of the same function takes them.
type insertion struct {
	enter    string // template: before the function's first statement
	field    string // before a struct's first field
	wrap     string // function that is put around every string literal below the service account's directory
	replaces string // template: replaces the expression do in the function
	do       string // expression as go/printer writes it, or the name of a function that is called
	body     string // of a function that is declared without one
	result   string // template: replaces the first result of the function's return statements, .Result
}

// A helper is a file added to a patched package; the inserted text calls its functions.
type helper struct {
	module   string
	dir      string // of the package inside the module
	template string // in points/
}

var helpers = []helper{
	{APIServer, "pkg/storage/cacher", "apiserver_cacher.go.tmpl"},
	{APIServer, "pkg/server", "apiserver_server.go.tmpl"},
	{APIServer, "pkg/registry/rest", "apiserver_rest.go.tmpl"},
	{APIExtensions, "pkg/apis/apiextensions/validation", "apiextensions_validation.go.tmpl"},
	{Kubernetes, "pkg/controlplane/apiserver", "kubernetes_controlplane.go.tmpl"},
	{Kubernetes, "pkg/controller", "kubernetes_controller.go.tmpl"},
	{APIMachinery, "pkg/util/wait", "apimachinery_wait.go.tmpl"},
	{Etcd, "storage/mvcc", "etcd_mvcc.go.tmpl"},
	{KWOK, "pkg/kwok/controllers", "kwok_pods.go.tmpl"},
	{ClientGo, "tools/cache", "clientgo_cache.go.tmpl"},
	{ClientGo, "rest", "clientgo_rest.go.tmpl"},
	{ClientGo, "tools/clientcmd", "clientgo_clientcmd.go.tmpl"},
	{ClientGo, "util/workqueue", "clientgo_workqueue.go.tmpl"},
	{ControllerRuntime, "pkg/cache/internal", "controllerruntime_cache.go.tmpl"},
	{ControllerRuntime, "pkg/internal/controller", "controllerruntime_controller.go.tmpl"},
	{ControllerRuntime, "pkg/controller/priorityqueue", "controllerruntime_priorityqueue.go.tmpl"},
	{ControllerRuntime, "pkg/leaderelection", "controllerruntime_leaderelection.go.tmpl"},
	{Reflect2, "", "reflect2.go.tmpl"},
}

// oldest is the first version of each module that the points are known to fit. For client-go it is the first one with
// its own version number; Kubernetes 1.16.0 had none.
var oldest = map[string]string{
	ClientGo:          "v0.16.4",
	ControllerRuntime: "v0.4.0",
	APIServer:         "v0.35.0",
	APIExtensions:     "v0.35.0",
	Kubernetes:        "v1.35.0",
	KWOK:              "v0.8.0",
	APIMachinery:      "v0.35.0",
	Aggregator:        "v0.35.0",
	Etcd:              "v3.6.0",
	Reflect2:          "v1.0.0",
}

// Oldest returns the first version of a module that the points are known to fit. It is empty if any version does.
func Oldest(module string) string { return oldest[module] }

// pointsKnownAt is the time of the newest version that the points are known to fit.
var pointsKnownAt = time.Date(2026, 10, 28, 0, 0, 0, 0, time.UTC)

// informerStore makes a constructor of plain informers return a store whose reads are reported.
func informerStore(function, from, objectType string) point {
	wrapper := "trommelStore"
	if strings.HasSuffix(function, "IndexerInformer") {
		wrapper = "trommelIndexed"
	}
	return point{
		module: ClientGo, from: from, file: "tools/cache/controller.go", function: function,
		insert: insertion{result: wrapper + "({{.Result}}, " + objectType + ")"},
	}
}

// reflector makes an informer's reflector deliver through the hook, until the informer is stopped.
func reflector(constructor, function, from, to string) []point {
	in := func(do, replaces string) point {
		return point{
			module: ClientGo, from: from, to: to, file: "tools/cache/controller.go", receiver: "*controller",
			function: function, insert: insertion{do: do, replaces: replaces},
		}
	}
	return append(observing(in(constructor, "trommelReflector"), wire.ControllerRecv),
		in("c.config.Queue.Close", "trommelClose(c.config.Queue)"))
}

// wakes makes a method that processes an informer's queue wake up those who wait until the queue is empty.
func wakes(file, receiver, function, from string) point {
	return point{
		module: ClientGo, from: from, file: file, receiver: receiver, function: function,
		insert: insertion{enter: "defer {{.Receiver}}.cond.Broadcast()"},
	}
}

// request reports a method of rest.Request that makes a request, by calling itself: with a marked context or, before
// 0.18, where the method takes no context, with a marked request.
func request(function string, watch string, results, end string, observed ...wire.Point) []point {
	p := point{
		module: ClientGo, from: "v0.18.0-0", file: "rest/request.go", receiver: "*Request", function: function,
		insert: insertion{enter: "if trommelConnected() { if inside, call := trommelBegin({{.Param 0}}, " +
			"{{.Receiver}}, " + watch + "); call != nil { " +
			results + " := {{.Receiver}}." + function + "(inside); " + end + "; return " + results + " } }"},
	}
	old := p
	old.from, old.to = "", "v0.18.0-0"
	old.insert.enter = "if trommelConnected() && !{{.Receiver}}.trommelInside { " +
		"if call := trommelBeginRequest({{.Receiver}}, " + watch + "); call != nil { " +
		"{{.Receiver}}.trommelInside = true; " + results + " := {{.Receiver}}." + function +
		"({{.Args}}); {{.Receiver}}.trommelInside = false; " +
		end + "; return " + results + " } }"
	return concat(observing(p, observed...), observing(old, observed...))
}

func observing(p point, points ...wire.Point) []point {
	var list []point
	for _, o := range points {
		p.observes = o
		list = append(list, p)
		p.insert = insertion{} // inserted once, but listed for each
	}
	return list
}

// queuePoints keep the table of work queues, see wire.QueueTable; no plan names them. Queues tell their metrics of each
// change while they are locked, so what counts them stands in for the metrics.
func queuePoints() []point {
	const (
		queue    = "util/workqueue/queue.go"
		delaying = "util/workqueue/delaying_queue.go"
		metrics  = "util/workqueue/metrics.go"
		priority = "pkg/controller/priorityqueue/priorityqueue.go"
	)
	return []point{
		{module: ClientGo, to: "v0.32.0-0", file: metrics, receiver: "*queueMetricsFactory",
			function: "newQueueMetrics", insert: insertion{result: "trommelCount({{.Result}}, {{.Param 0}})"}},
		{module: ClientGo, from: "v0.32.0-0", file: metrics, function: "newQueueMetrics",
			insert: insertion{result: "trommelCount[T]({{.Result}}, {{.Param 1}})"}},
		{module: ClientGo, to: "v0.31.0-0", file: queue, receiver: "*Type", function: "ShutDown",
			insert: insertion{enter: "defer trommelCounted({{.Receiver}}).ShutDown()"}},
		{module: ClientGo, from: "v0.31.0-0", file: queue, receiver: "*Typed", function: "ShutDown",
			insert: insertion{enter: "defer trommelCounted({{.Receiver}}).ShutDown()"}},
		// A delayed item counts before it is sent to the queue's goroutine.
		{module: ClientGo, file: delaying, receiver: "*delayingType", function: "AddAfter",
			insert: insertion{do: "q.clock.Now",
				replaces: "trommelDelay({{.Receiver}}, {{.Param 0}}, {{.Param 1}})"}},
		{module: ClientGo, file: delaying, receiver: "*delayingType", function: "waitingLoop",
			insert: insertion{enter: "defer trommelDelayed({{.Receiver}}).DropDelayed()"}},
		{module: ClientGo, file: delaying, receiver: "*delayingType", function: "waitingLoop",
			insert: insertion{do: "q.Add", replaces: "trommelAdd({{.Receiver}})"}},
		{module: ClientGo, file: delaying, receiver: "*delayingType", function: "waitingLoop",
			insert: insertion{do: "insert", replaces: "trommelInsert({{.Receiver}})"}},

		{module: ControllerRuntime, from: "v0.20.0-0", file: "pkg/controller/priorityqueue/metrics.go",
			function: "newQueueMetrics", insert: insertion{result: "trommelCount[T]({{.Result}}, {{.Param 1}})"}},
		{module: ControllerRuntime, from: "v0.20.0-0", file: priority, receiver: "*priorityqueue",
			function: "ShutDown", insert: insertion{enter: "defer trommelCounted({{.Receiver}}).ShutDown()"}},
		{module: ControllerRuntime, from: "v0.20.0-0", to: "v0.23.0-0", file: priority,
			receiver: "*priorityqueue", function: "AddWithOpts",
			insert: insertion{enter: "defer trommelAdding({{.Receiver}}, {{.Param 1}})()"}},
		// Items go through a buffer, in which they count as queued.
		{module: ControllerRuntime, from: "v0.23.0-0", file: priority, receiver: "*priorityqueue",
			function: "AddWithOpts", insert: insertion{enter: "trommelPending({{.Receiver}}, {{.Param 1}})"}},
		{module: ControllerRuntime, from: "v0.23.0-0", file: priority, receiver: "*priorityqueue",
			function: "lockedAddWithOpts",
			insert:   insertion{enter: "defer trommelAdded({{.Receiver}}, {{.Param 1}})"}},
	}
}

// idlePoints let a control plane rest in which nothing happens: each time that a timer fires, a run's clock stops. They
// remove timers that only metrics or connections need that cannot break, let others fire together, and watch no files.
func idlePoints() []point {
	// together is for a timer of a period: it fires at each multiple of it, as others do.
	together := func(period string) insertion {
		return insertion{do: period,
			replaces: "time.Until(time.Now().Truncate(" + period + ").Add(" + period + "))"}
	}
	unwatched := func(file, receiver, function string) point {
		return point{module: APIServer, file: "pkg/server/dynamiccertificates/" + file, receiver: receiver,
			function: function, insert: insertion{enter: "if true { <-{{.Param 0}}; return nil }"}}
	}
	const watchable = "storage/mvcc/watchable_store.go"
	return []point{
		{module: APIMachinery, file: "pkg/util/wait/backoff.go", receiver: "*jitteredBackoffManagerImpl",
			function: "getNextBackoff",
			insert:   insertion{result: "trommelTogether({{.Receiver}}.jitter, {{.Result}})"}},
		// A delaying queue has a timer for what is due first. The heartbeat is for the case that this timer fails.
		{module: ClientGo, from: "v0.35.0-0", file: "util/workqueue/delaying_queue.go",
			function: "newDelayingQueue", insert: insertion{do: "maxWait", replaces: "time.Hour"}},

		// Each resource's connection to etcd, which is a unix socket.
		{module: APIServer, file: "pkg/storage/storagebackend/factory/etcd3.go", function: "newETCD3Client",
			insert: insertion{do: "keepaliveTime", replaces: "time.Hour"}},
		{module: APIServer, file: "pkg/server/filters/maxinflight.go", function: "startWatermarkMaintenance",
			insert: insertion{do: "inflightUsageMetricUpdatePeriod", replaces: "time.Hour"}},
		{module: APIServer, file: "pkg/storage/etcd3/stats.go", receiver: "*resourceSizeEstimator",
			function: "run", insert: insertion{do: "sizerRefreshInterval", replaces: "time.Hour"}},
		{module: APIServer, file: "pkg/storage/cacher/compactor.go", receiver: "*compactor", function: "Run",
			insert: insertion{do: "compactorPollPeriod",
				replaces: "time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))"}},
		// A cluster's certificates never change. A user has 128 inotify instances for all programs (the default of
		// fs.inotify.max_user_instances); an API server would take five, and a controller that watches its own
		// certificates would find none.
		unwatched("dynamic_cafile_content.go", "*DynamicFileCAContent", "watchCAFile"),
		unwatched("dynamic_serving_content.go", "*DynamicCertKeyPairContent", "watchCertKeyFile"),
		// The servers' own documents are merged anew, whether they have changed or not.
		{module: Aggregator, file: "pkg/controllers/openapiv3/controller.go",
			receiver: "*AggregationController", function: "processNextWorkItem",
			insert: insertion{do: "successfulUpdateDelayLocal", replaces: "5*time.Second"}},

		{module: Kubernetes, file: "pkg/scheduler/metrics/metric_recorder.go", receiver: "*MetricAsyncRecorder",
			function: "run", insert: together("r.interval")},

		{module: Etcd, file: "storage/backend/backend.go", receiver: "*backend", function: "run",
			insert: together("b.batchInterval")},
		// Of several clusters in a run, each has resource versions of its own: they tell whose object one is.
		{module: Etcd, file: "storage/mvcc/kvstore.go", function: "restoreIntoIndex",
			insert: insertion{do: "int64(1)", replaces: "trommelFirstRevision()"}},
		{module: Etcd, file: "lease/lessor.go", receiver: "*lessor", function: "runLoop",
			insert: insertion{do: "500 * time.Millisecond", replaces: "10*time.Second"}},
		// It looks ten times a second whether there is a watcher that has missed something. Here a signal replaces the
		// polling.
		{module: Etcd, file: watchable, function: "watchableStore",
			insert: insertion{field: "trommelTicker trommelTicker"}},
		{module: Etcd, file: watchable, receiver: "*watchableStore", function: "syncWatchersLoop",
			insert: insertion{do: "time.NewTicker", replaces: "{{.Receiver}}.trommelTicking"}},
		{module: Etcd, file: watchable, receiver: "*watchableStore", function: "syncWatchersLoop",
			insert: insertion{do: "delayTicker.Reset", replaces: "{{.Receiver}}.trommelWait"}},
		{module: Etcd, file: watchable, receiver: "*watchableStore", function: "watch",
			insert: insertion{enter: "defer {{.Receiver}}.trommelUnsynced()"}},
		{module: Etcd, file: watchable, receiver: "*watchableStore", function: "Restore",
			insert: insertion{enter: "defer {{.Receiver}}.trommelUnsynced()"}},
		{module: Etcd, file: watchable, receiver: "*watchableStore", function: "moveVictims",
			insert: insertion{enter: "defer {{.Receiver}}.trommelUnsynced()"}},
	}
}

var points = concat(
	observing(point{
		module: APIServer, from: "v0.35.0-0", to: "v0.38.0-0", file: "pkg/storage/cacher/watch_cache.go",
		receiver: "*watchCache", function: "processEvent",
		insert: insertion{enter: "defer trommelReceive({{.Receiver}}, {{.Param 0}})()"},
	}, wire.APIServerRecv),

	// Each resource's cache has a timer of about a second. They fire together, so that the clock of a run stops once.
	[]point{{
		module: APIServer, from: "v0.35.0-0", to: "v0.38.0-0", file: "pkg/storage/cacher/cacher.go",
		receiver: "*Cacher", function: "dispatchEvents",
		insert: insertion{do: "wait.Jitter(time.Second, 0.25)", replaces: "trommelNextSecond()"},
	}},

	idlePoints(),

	// Every queue has a loop that updates two metrics twice a second, and does nothing else.
	[]point{
		{
			module: ClientGo, to: "v0.31.0-0", file: "util/workqueue/queue.go", receiver: "*Type",
			function: "updateUnfinishedWorkLoop", insert: insertion{enter: "return"},
		},
		{
			module: ClientGo, from: "v0.31.0-0", file: "util/workqueue/queue.go", receiver: "*Typed",
			function: "updateUnfinishedWorkLoop", insert: insertion{enter: "return"},
		},
		{
			module: ControllerRuntime, from: "v0.21.0-0", file: "pkg/controller/priorityqueue/priorityqueue.go",
			receiver: "*priorityqueue", function: "updateUnfinishedWorkLoop", insert: insertion{enter: "return"},
		},
	},

	reflector("NewReflector", "Run", "", "v0.27.0-0"),
	reflector("NewReflectorWithOptions", "Run", "v0.27.0-0", "v0.33.0-0"),
	reflector("NewReflectorWithOptions", "RunWithContext", "v0.33.0-0", ""),
	[]point{
		wakes("tools/cache/delta_fifo.go", "*DeltaFIFO", "Pop", ""),
		wakes("tools/cache/the_real_fifo.go", "*RealFIFO", "Pop", "v0.33.0-0"),
		wakes("tools/cache/the_real_fifo.go", "*RealFIFO", "PopBatch", "v0.35.0-0"),
		// From 0.36 on a queue can be unlocked while it is processed, and need not know its store.
		{module: ClientGo, from: "v0.36.0-0", file: "tools/cache/the_real_fifo.go", function: "RealFIFO",
			insert: insertion{field: "trommelStore Store; trommelProcessing bool"}},
		{module: ClientGo, from: "v0.36.0-0", file: "tools/cache/the_real_fifo.go", receiver: "*RealFIFO",
			function: "whileProcessing_locked", insert: insertion{enter: "{{.Receiver}}.trommelProcessing = true; " +
				"defer func() { {{.Receiver}}.trommelProcessing = false }()"}},
		{module: ClientGo, from: "v0.36.0-0", file: "tools/cache/controller.go", function: "newQueueFIFO",
			insert: insertion{do: "NewRealFIFOWithOptions", replaces: "trommelOfStore({{.Param 2}})"}},
	},

	observing(point{
		module: ClientGo, file: "tools/cache/shared_informer.go", receiver: "*sharedIndexInformer",
		function: "GetIndexer",
		insert:   insertion{enter: "if trommelEnabled { return trommelReader({{.Receiver}}) }"},
	}, wire.ControllerRead),
	observing(point{
		module: ClientGo, file: "tools/cache/shared_informer.go", receiver: "*sharedIndexInformer",
		function: "GetStore",
		insert:   insertion{enter: "if trommelEnabled { return trommelReader({{.Receiver}}) }"},
	}, wire.ControllerRead),

	observing(informerStore("NewInformer", "", "{{.Param 1}}"), wire.ControllerRead),
	observing(informerStore("NewIndexerInformer", "", "{{.Param 1}}"), wire.ControllerRead),
	observing(informerStore("NewTransformingInformer", "v0.23.0-0", "{{.Param 1}}"), wire.ControllerRead),
	observing(informerStore("NewTransformingIndexerInformer", "v0.23.0-0", "{{.Param 1}}"), wire.ControllerRead),
	observing(informerStore("NewInformerWithOptions", "v0.31.0-0", "{{.Param 0}}.ObjectType"), wire.ControllerRead),

	request("Do", "false", "result", "if err := trommelEnd(call, {{.Receiver}}, result); err != nil { "+
		"return Result{err: err} }", wire.ControllerRead, wire.ControllerWrite),
	request("DoRaw", "false", "body, err", "if err := trommelEndRaw(call, {{.Receiver}}, body, err); err != nil { "+
		"return nil, err }", wire.ControllerRead, wire.ControllerWrite),
	request("Stream", "false", "stream, err", "trommelEndStream(call, {{.Receiver}}, err)", wire.ControllerRead),
	request("Watch", "true", "w, err", "trommelEndStream(call, {{.Receiver}}, err)", wire.ControllerRead),
	[]point{
		{module: ClientGo, to: "v0.18.0-0", file: "rest/request.go", function: "Request",
			insert: insertion{field: "trommelInside bool"}},
		{module: ClientGo, file: "rest/request.go", function: "Request",
			insert: insertion{field: "trommelBody interface{}"}},
		{module: ClientGo, file: "rest/request.go", function: "Request",
			insert: insertion{field: "trommelFailing *trommelCall"}},
		{module: ClientGo, file: "rest/request.go", receiver: "*Request", function: "request",
			insert: insertion{do: "client.Do", replaces: "trommelExchange({{.Receiver}}, client.Do)"}},
		{module: ClientGo, file: "rest/request.go", receiver: "*Request", function: "Body",
			insert: insertion{enter: "{{.Receiver}}.trommelBody = {{.Param 0}}"}},
		{module: ClientGo, file: "rest/config.go", function: "InClusterConfig",
			insert: insertion{wrap: "trommelServiceAccount"}},
		{module: ClientGo, file: "tools/clientcmd/client_config.go", receiver: "*inClusterClientConfig",
			function: "Namespace", insert: insertion{wrap: "trommelServiceAccount"}},
		{module: ClientGo, file: "tools/clientcmd/client_config.go", receiver: "*inClusterClientConfig",
			function: "Possible", insert: insertion{wrap: "trommelServiceAccount"}},
		{module: ControllerRuntime, file: "pkg/leaderelection/leader_election.go",
			insert: insertion{wrap: "trommelServiceAccount"}},
	},

	queuePoints(),

	observing(point{
		module: ControllerRuntime, file: "pkg/cache/internal/cache_reader.go", receiver: "*CacheReader",
		function: "Get",
		insert: insertion{enter: "if trommelConnected() { if reader, call := trommelRead({{.Param 0}}, " +
			"{{.Receiver}}, {{.Param 1}}, false); reader != nil { return trommelEnd(call, {{.Param 2}}, " +
			"reader.Get({{.Args}})) } }"},
	}, wire.ControllerRead),
	observing(point{
		module: ControllerRuntime, file: "pkg/cache/internal/cache_reader.go", receiver: "*CacheReader",
		function: "List",
		insert: insertion{enter: "if trommelConnected() { if reader, call := trommelRead({{.Param 0}}, " +
			"{{.Receiver}}, trommelNamespace({{.Param 2}}), true); reader != nil { return trommelEndList(call, " +
			"{{.Param 1}}, {{.Param 2}}, reader.List({{.Args}})) } }"},
	}, wire.ControllerRead),

	observing(point{
		module: ControllerRuntime, to: "v0.9.0-0", file: "pkg/internal/controller/controller.go",
		receiver: "*Controller", function: "reconcileHandler",
		insert: insertion{do: "c.Do", replaces: "trommelDo({{.Receiver}})"},
	}, wire.Reconcile),
	observing(point{
		module: ControllerRuntime, from: "v0.9.0-0", file: "pkg/internal/controller/controller.go",
		receiver: "*Controller", function: "Reconcile",
		insert: insertion{enter: "if trommelConnected() { if inside, call := trommelReconcile({{.Param 0}}, " +
			"{{.Receiver}}, {{.Receiver}}.Name, {{.Receiver}}.Do, {{.Param 1}}); call != nil { " +
			"result, err := {{.Receiver}}.Reconcile(inside, {{.Param 1}}); call.After(nil, nil, err, 0); " +
			"return result, err } }"},
	}, wire.Reconcile),

	// The JSON library of client-go before 0.22 crashes on maps since Go 1.18; 1.0.2 fixed that.
	[]point{{
		module: Reflect2, to: "v1.0.2-0", file: "unsafe_map.go", receiver: "*UnsafeMapType",
		function: "UnsafeIterate",
		insert:   insertion{enter: "if {{.Receiver}} != nil { return trommelIterate({{.Receiver}}, {{.Param 0}}) }"},
	}},

	[]point{
		// Both look for new types every 30 s. A cluster whose types were just created would keep the dependents of
		// deleted objects that long. Here they look again and again as long as types change, and need not later.
		{
			module: Kubernetes, file: "pkg/controller/garbagecollector/garbagecollector.go",
			receiver: "*GarbageCollector", function: "Sync",
			insert: insertion{enter: "if {{.Param 2}} > time.Second { {{.Param 2}} = time.Second }"},
		},
		{
			module: Kubernetes, file: "pkg/controller/garbagecollector/garbagecollector.go",
			receiver: "*GarbageCollector", function: "Sync",
			insert: insertion{do: "wait.UntilWithContext",
				replaces: "c.TrommelWhileTypesChange({{.Receiver}}.dependencyGraphBuilder.sharedInformers)"},
		},
		{
			module: Kubernetes, file: "pkg/controller/resourcequota/resource_quota_controller.go",
			receiver: "*Controller", function: "Sync",
			insert: insertion{enter: "if {{.Param 2}} > 5*time.Second { {{.Param 2}} = 5 * time.Second }"},
		},
		{
			module: Kubernetes, file: "pkg/controller/resourcequota/resource_quota_controller.go",
			receiver: "*Controller", function: "Sync",
			insert: insertion{do: "wait.UntilWithContext",
				replaces: "controller.TrommelWhileTypesChange({{.Receiver}}.quotaMonitor.informerFactory)"},
		},
		// Loops that look ten times a second whether there is something to do. In a run's own time each look makes the
		// clock stop; and hardly anything here waits for them.
		{
			module: Kubernetes, file: "pkg/controller/nodelifecycle/node_lifecycle_controller.go",
			receiver: "*Controller", function: "Run",
			insert: insertion{do: "scheduler.NodeEvictionPeriod", replaces: "10*scheduler.NodeEvictionPeriod"},
		},
		{
			module: Kubernetes, file: "pkg/controller/volume/attachdetach/reconciler/reconciler.go",
			function: "NewReconciler",
			insert:   insertion{enter: "if {{.Param 0}} < time.Second { {{.Param 0}} = time.Second }"},
		},
		// The pods that are local processes have loopback addresses: endpoints may name them, and the proxy
		// subresources may connect there.
		{
			module: Kubernetes, file: "pkg/apis/core/validation/validation.go", function: "ValidateEndpointIP",
			insert: insertion{enter: "if ip := netutils.ParseIPSloppy({{.Param 0}}); ip != nil && ip.IsLoopback() { " +
				"return nil }"},
		},
		{
			module: Kubernetes, file: "pkg/registry/core/pod/strategy.go", function: "ResourceLocation",
			insert: insertion{do: "ip.IsGlobalUnicast",
				replaces: "(func() bool { return ip.IsGlobalUnicast() || ip.IsLoopback() })"},
		},
	},

	// KWOK names a pod only by its name, and would delete the next one, which a StatefulSet creates at once.
	[]point{
		{
			module: KWOK, file: "pkg/kwok/controllers/pod_controller.go", receiver: "*PodController",
			function: "deleteResource", insert: insertion{enter: "deleteOpt := trommelDeleteOptions({{.Param 1}})"},
		},
		{
			module: KWOK, file: "pkg/kwok/controllers/pod_controller.go", receiver: "*PodController",
			function: "patchResource",
			insert: insertion{enter: "{{.Param 2}}, trommelErr := trommelPatch({{.Param 1}}, {{.Param 2}}); " +
				"if trommelErr != nil { return nil, trommelErr }"},
		},
	},

	// API versions that Kubernetes has removed are served if the cluster is configured so. Requests in such a version
	// keep its validation and its defaults.
	[]point{
		{
			module: APIServer, file: "pkg/server/genericapiserver.go", receiver: "*GenericAPIServer",
			function: "InstallAPIGroups",
			insert:   insertion{enter: "{{.Param 0}} = trommelServeRemoved({{.Receiver}}, {{.Param 0}})"},
		},
		{
			module: APIServer, to: "v0.37.0-0", file: "pkg/registry/rest/create.go", function: "BeforeCreate",
			insert: insertion{do: "strategy.Validate", replaces: "trommelValidate(strategy.Validate)"},
		},
		{
			module: APIServer, to: "v0.37.0-0", file: "pkg/registry/rest/update.go", function: "BeforeUpdate",
			insert: insertion{do: "strategy.ValidateUpdate",
				replaces: "trommelValidateUpdate(strategy.ValidateUpdate)"},
		},
		{
			module: APIServer, from: "v0.37.0-0", file: "pkg/registry/rest/create.go", function: "ValidateCreate",
			insert: insertion{result: "trommelAllowed({{.Param 0}}, {{.Result}})"},
		},
		{
			module: APIServer, from: "v0.37.0-0", file: "pkg/registry/rest/update.go", function: "ValidateUpdate",
			insert: insertion{result: "trommelAllowed({{.Param 0}}, {{.Result}})"},
		},
		{
			module: APIServer, file: "pkg/registry/generic/registry/store.go", function: "shouldOrphanDependents",
			insert: insertion{do: "gcStrategy.DefaultGarbageCollectionPolicy",
				replaces: "rest.TrommelGarbageCollection(gcStrategy)"},
		},
		{
			module: APIExtensions, file: "pkg/apis/apiextensions/validation/validation.go",
			function: "validateCustomResourceDefinitionSpec",
			insert:   insertion{enter: "{{.Param 2}} = trommelOptions({{.Param 0}}, {{.Param 2}})"},
		},
		{
			module: Kubernetes, file: "pkg/controlplane/apiserver/aggregator.go",
			function: "CreateAggregatorServer",
			insert:   insertion{enter: "{{.Param 4}} = trommelPriorities({{.Param 4}})"},
		},
	},
)

// goroutinePoints lists the additional points of a controller whose reconciles have no context: the goroutine says
// which reconcile makes a call. An informer that a reconcile has started works for all of them.
var goroutinePoints = []point{
	outside("tools/cache/shared_informer.go", "*sharedIndexInformer", "Run"),
	outside("tools/cache/shared_informer.go", "*processorListener", "run"),
	outside("tools/cache/controller.go", "*controller", "Run"),
	outside("tools/cache/reflector.go", "*Reflector", "Run"),
}

func outside(file, receiver, function string) point {
	return point{
		module: ClientGo, file: file, receiver: receiver, function: function,
		insert: insertion{enter: "defer trommelLeave()()"},
	}
}

func concat(lists ...[]point) []point {
	var all []point
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// pointsOf returns the points of a module's version.
func pointsOf(module, version string, byGoroutine bool) []point {
	all := points
	if byGoroutine {
		all = concat(points, goroutinePoints)
	}
	var list []point
	for _, p := range all {
		if p.module == module && (p.from == "" || semver.Compare(version, p.from) >= 0) &&
			(p.to == "" || semver.Compare(version, p.to) < 0) {
			list = append(list, p)
		}
	}
	return list
}

func (p *point) name() string {
	switch {
	case p.function == "":
		return "paths of the service account"
	case p.receiver != "":
		return "(" + p.receiver + ")." + p.function
	}
	return p.function
}

// Patched is one place that a build changes.
type Patched struct {
	wire.CompiledPoint // Point is empty if nothing is observed
	Path               string
}

// NotFoundError says that a module's version does not have a point at the place given by the table of points.
type NotFoundError struct {
	Module, Version, File, Function, Reason string
	Dir                                     string // directory of the module's source
}

func (e *NotFoundError) Error() string {
	if e.Module == Standard {
		what := "give its processes their pod's files and address"
		if strings.HasPrefix(e.File, labelsDir+"/") {
			what = "distinguish reconciles that have no context"
		}
		return fmt.Sprintf("%s: %s in %s: %s; this version of trommel does not know how to %s: "+
			"build with a released Go, %s or later (GOTOOLCHAIN), or with a newer trommel (searched: %s)", e.Version,
			e.Function, e.File, e.Reason, what, OldestGo, e.Dir)
	}
	return fmt.Sprintf("%s %s: %s in %s: %s; this version of trommel does not know how to observe it: "+
		"build with a released %s, %s or later, "+
		"or with a newer trommel (searched: %s)", e.Module, e.Version, e.Function, e.File, e.Reason, e.Module,
		oldest[e.Module], e.Dir)
}
