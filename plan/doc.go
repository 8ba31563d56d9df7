// Package plan holds test plans and suites: their types, how they are read, checked and written, and what their
// conditions mean.
//
// A plan is a list of actions, each with the trigger that it waits for. A suite (trommel.yaml) is what the plans of a
// directory share: the cluster, the controllers under test, manifests, workloads and invariants.
//
// The Go types with their tags are the description of both formats. [Load] and [LoadSuite] read YAML strictly: all
// mistakes in a file are returned together as [Errors], each with its line and column. [LoadWith] also checks a plan
// against its suite. Package build makes the same plans in Go: [Plan.Complete] fills in what they leave out, and
// [Plan.Validate] checks them.
//
// # Plans
//
//	apiVersion: trommel.dev/v1alpha1   # this and kind may be left out
//	kind: TestPlan
//	testName: stale-deletion-timestamp
//	description: free text
//	suite: ../trommel.yaml             # default: the nearest trommel.yaml in the directory or above
//	workload: recreate                 # default: the suite's only one
//	variant: fixed                     # default: none
//	actions:
//	  - actionType: pauseAPIServer
//	    actionTarget: apiserver-2
//	    pauseScope: database/default/db    # a resource key; default, and "*": everything
//	    trigger:
//	      definitions:
//	        - triggerName: marked
//	          condition:
//	            triggerType: onObjectUpdate
//	            resourceKey: database/default/db
//	            curState: {metadata: {deletionTimestamp: $present}}
//	            repeat: 1                  # the n-th match since the trigger became enabled
//	          observationPoint: {timing: afterAPIServerRecv, observeBy: apiserver-2}
//	      expression: marked               # default with a single definition: its name
//	  - actionType: reconnectController
//	    actionTarget: db-operator          # default: the suite's only controller
//	    reconnectAPIServer: apiserver-2
//	    reconnectBy: restart               # or cut: the process keeps running, its connections are redirected
//	    watchList: false                   # no streaming lists in the whole run; default: as the suite says
//	    waitBefore: 1s                     # after the trigger; waitAfter: before the action counts as complete
//	    async: true                        # the next action's trigger is enabled when this one begins
//	    trigger:
//	      definitions:
//	        - triggerName: recreated
//	          condition:
//	            triggerType: onObjectCreation
//	            resourceKey: statefulset.apps/default/db
//	            where: object.spec.replicas > 1
//	          observationPoint:
//	            timing: afterControllerWrite
//	            observeBy: db-operator
//	            reconciler: (*DatabaseReconciler)
//	        - triggerName: late
//	          condition: {triggerType: onTimeout, timeout: 20s}
//	      expression: recreated | late
//	  - actionType: pauseController
//	    pauseAt: beforeControllerRead      # a timing
//	    pauseScope: pod/default/*
//	    avoidOngoingRead: true             # only at a read: not in the middle of a reconcile
//	    trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}
//	  - actionType: resumeController
//	    trigger: &soon {definitions: [{triggerName: soon, condition: {triggerType: onTimeout, timeout: 2s}}]}
//	  - actionType: failCall
//	    callScope: secret/default/*        # as pauseScope
//	    callOperations: [create, update]   # default: all writes
//	    answer: refused                    # or lost: the call takes effect
//	    status: 409                        # default: 500, for a lost call the client's timeout expires
//	    retryAfterSeconds: 0
//	    times: 1                           # or untilRestored: true
//	    trigger: *soon
//	  - actionType: restoreCalls
//	    callScope: secret/default/*
//	    trigger: *soon
//	  - actionType: freezeController       # stops the process that satisfied the trigger
//	    trigger: *soon
//	  - actionType: thawController
//	    kill: false                        # true: it is killed instead
//	    trigger: *soon
//	  - actionType: apply
//	    manifest: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}   # or manifestFile: a file beside the plan
//	    trigger: *soon
//	  - actionType: patch
//	    resourceKey: database/default/db
//	    patchType: merge                   # json, strategic
//	    subresource: status
//	    patch: {status: {phase: Broken}}
//	    trigger: *soon
//	  - actionType: delete
//	    resourceKey: pod/default/db-0
//	    trigger: *soon
//
// restartController, killController, startController and resumeController take an actionTarget; resumeAPIServer,
// killAPIServer and startAPIServer need one.
//
// The trigger types are onObjectCreation, onObjectUpdate, onObjectDeletion, onAnyFieldModified and onAllFieldsModified
// ([Matcher] says what they and prevState, curState and where mean); onAnnotatedCall with call, one of the suite's
// annotatedCalls; onReconcile, which may be left out if the timing is before- or afterReconcile; onTimeout with
// timeout, which starts when the trigger becomes enabled; and none, which is satisfied at once. The last two have no
// observation point. Timings are before or after one of APIServerRecv (observeBy is an API server), ControllerRecv,
// ControllerRead, ControllerWrite, Reconcile and AnnotatedCall (observeBy is a controller).
//
// A resource key is type/namespace/name with the type in singular lower case: pod/default/web-0. The namespace is empty
// for cluster scope (node//n1); type.group is for ambiguous types; the name may contain "*", and the namespace may be
// "*". An expression joins names with ";" (sequence), "|" (either) and "&" (both), see package expr. Durations are
// Go's: 20s, 1m30s, 500ms.
//
// Also accepted, and rewritten to the words above: conditionName for triggerName, observePoint for observationPoint,
// states as JSON in a string, and both formats of Sieve's published plans (package sieve).
//
// # Suites
//
//	apiVersion: trommel.dev/v1alpha1
//	kind: Suite
//	cluster:
//	  type: embedded                   # the default; or kind, or existing
//	  kubernetesVersion: "1.36"        # default: 1.36; trommel build --help lists the versions
//	  apiServers: 3                    # 1 to 5
//	  nodes: 3                         # simulated
//	  disableControllers: [statefulset-controller]
//	  featureGates: {SomeFeature: true}
//	  apiServerArgs: []
//	  controllerManagerArgs: []
//	  answers:                         # of simulated pods; default: success and no output
//	    - {pod: db-*, container: main, command: "^pg_isready", stdout: "accepting connections\n", exitCode: 0}
//	    - {pod: db-*, log: "started\n"}
//	  jobKinds: [TaskRun]              # whose simulated pods run for a while and succeed, as those of a Job
//	  simulatedPods: {ready: 2s, end: 1s, seed: 0} # how long they take
//	  # policy/v1beta1 and the like; default: if a controller has client-go before 0.25
//	  removedAPIs: true
//	controllers:
//	  - name: db-operator
//	    build: {dir: ., package: ., tags: [], ldflags: "", env: {}}
//	    args: [--leader-elect=false]
//	    env: {LOG_LEVEL: debug}
//	    namespace: default             # of the generated Deployment, as clusterRole
//	    clusterRole: cluster-admin
//	    apiServer: apiserver-1         # the one that it connects to first
//	    replicas: 2                    # default: as the Deployment says
//	    watchList: false               # client-go's WatchListClient; default: client-go's own
//	    keepLeases: false              # whether a killed controller's successor waits until its lease expires
//	    annotatedCalls:
//	      - {name: resize, package: example.com/db/volumes, receiver: "*Client", function: Resize}
//	  - name: statefulset-controller
//	    build: {controlPlane: kube-controller-manager}
//	    args: [--controllers=statefulset-controller]
//	manifests: []                      # files and directories, applied in this order before the controllers start
//	workloads:
//	  recreate:                        # a list of steps, each one of apply, delete, patch, wait, sleep,
//	                               # advanceTime, exec, upgrade
//	    - name: create                 # optional
//	      apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}   # or objects, or a file
//	    # condition, phase or absent
//	    - wait: {resourceKey: configmap/default/a, condition: "has(object.metadata.uid)", timeout: 20s}
//	    - patch: {resourceKey: configmap/default/a, patchType: merge, patch: {data: {k: v}}}
//	    - sleep: 2s
//	    - delete: configmap/default/a  # or {resourceKey, gracePeriod, propagation, ignoreNotFound}
//	    - wait: {resourceKey: configmap/default/a, absent: true}
//	    - exec: [sh, -c, kubectl get all]   # or {command, timeout}
//	  external: {command: [./workload.sh], timeout: 2m}
//	invariants:
//	  - name: volumes-are-kept
//	    on: persistentvolumeclaim/default/*
//	    never: event == "deleted"      # or always: …
//	    message: object.metadata.name + " was deleted"
//	  - name: settles
//	    eventually: objects.exists(o, o.kind == "ConfigMap")
//	    within: 30s
//	variants:
//	  fixed:
//	    controllers: {db-operator: {args: [--fixed], env: {}, watchList: true}}
//	    cluster: {featureGates: {SomeFeature: false}}
//	history: [pod/default/*]           # recorded besides what plan, workload and invariants name
//	disruptions: {install: false}      # whether their controllers run in the cluster, not inside of Trommel
//	timeouts: {plan: 3m, step: 60s, workload: 2m, hold: 60s, ready: 60s, settle: 15s}
package plan
