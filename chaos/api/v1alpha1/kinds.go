package v1alpha1

// Kind is a kind of fault: the name of its field in Kinds.
type Kind string

// The kinds, in the order of the fields of Kinds.
const (
	KindNetwork          Kind = "network"
	KindAPIFault         Kind = "apiFault"
	KindDNS              Kind = "dns"
	KindCPUPressure      Kind = "cpuPressure"
	KindMemoryPressure   Kind = "memoryPressure"
	KindDiskPressure     Kind = "diskPressure"
	KindDiskFailure      Kind = "diskFailure"
	KindContainerFailure Kind = "containerFailure"
	KindNodeFailure      Kind = "nodeFailure"
	KindPodReplacement   Kind = "podReplacement"
	KindGRPC             Kind = "grpc"
)

// Kinds are the faults. Any number can be given at once. What each needs is in chaos/kinds.
//
// +kubebuilder:validation:XValidation:rule="has(self.network) || has(self.apiFault) || has(self.dns) || has(self.cpuPressure) || has(self.memoryPressure) || has(self.diskPressure) || has(self.diskFailure) || has(self.containerFailure) || has(self.nodeFailure) || has(self.podReplacement) || has(self.grpc)",message="at least one kind is required: network, apiFault, dns, cpuPressure, memoryPressure, diskPressure, diskFailure, containerFailure, nodeFailure, podReplacement or grpc"
// +kubebuilder:validation:XValidation:rule="!has(self.podReplacement) || !(has(self.network) || has(self.apiFault) || has(self.dns) || has(self.cpuPressure) || has(self.memoryPressure) || has(self.diskPressure) || has(self.diskFailure) || has(self.containerFailure) || has(self.nodeFailure) || has(self.grpc))",message="podReplacement cannot be combined with other kinds: their target would be replaced"
type Kinds struct {
	// Network disturbs the targets' connections.
	// +optional
	Network *Network `json:"network,omitempty"`
	// APIFault makes requests to the Kubernetes API fail, wait or hang.
	// +optional
	APIFault *APIFault `json:"apiFault,omitempty"`
	// DNS answers wrongly or not at all.
	// +optional
	DNS *DNS `json:"dns,omitempty"`
	// CPUPressure takes processor time.
	// +optional
	CPUPressure *CPUPressure `json:"cpuPressure,omitempty"`
	// MemoryPressure takes memory.
	// +optional
	MemoryPressure *MemoryPressure `json:"memoryPressure,omitempty"`
	// DiskPressure limits the throughput of a disk.
	// +optional
	DiskPressure *DiskPressure `json:"diskPressure,omitempty"`
	// DiskFailure makes file operations fail.
	// +optional
	DiskFailure *DiskFailure `json:"diskFailure,omitempty"`
	// ContainerFailure ends the targets' containers.
	// +optional
	ContainerFailure *ContainerFailure `json:"containerFailure,omitempty"`
	// NodeFailure makes the target's node fail.
	// +optional
	NodeFailure *NodeFailure `json:"nodeFailure,omitempty"`
	// PodReplacement moves the target away: cordon, delete claims and pod, uncordon.
	// +optional
	PodReplacement *PodReplacement `json:"podReplacement,omitempty"`
	// GRPC makes calls of gRPC methods fail or answer something else.
	// +optional
	GRPC *GRPC `json:"grpc,omitempty"`
}

// Percentage is a probability in percent.
//
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=100
type Percentage int32

// Network disturbs a target's connections to hosts and services. For HTTP requests see HTTP.
//
// +kubebuilder:validation:XValidation:rule="has(self.drop) || has(self.duplicate) || has(self.corrupt) || has(self.delay) || has(self.bandwidthLimit)",message="at least one of drop, duplicate, corrupt, delay and bandwidthLimit is required"
// +kubebuilder:validation:XValidation:rule="!has(self.delayJitter) || has(self.delay)",message="delayJitter needs delay"
type Network struct {
	// Hosts are the peers whose traffic is disturbed. Without Hosts and Services it is all traffic, which the
	// controllers refuse unless they are configured to accept it.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	// +listType=atomic
	Hosts []NetworkHost `json:"hosts,omitempty"`
	// Services are Kubernetes services whose traffic is disturbed.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	// +listType=atomic
	Services []NetworkService `json:"services,omitempty"`
	// Percentage is the share of connections (or packets, where the backend sees packets) that are disturbed.
	// +kubebuilder:default=100
	Percentage *Percentage `json:"percentage,omitempty"`
	// Drop is the share in percent that is lost. A connection that is lost hangs until it times out.
	// +optional
	Drop *Percentage `json:"drop,omitempty"`
	// Duplicate is the share of packets that arrive twice.
	// +optional
	Duplicate *Percentage `json:"duplicate,omitempty"`
	// Corrupt is the share of packets with a wrong bit.
	// +optional
	Corrupt *Percentage `json:"corrupt,omitempty"`
	// Delay is added to each packet, or to each piece of data in a direction.
	// +optional
	Delay *Duration `json:"delay,omitempty"`
	// DelayJitter varies Delay by up to this much, up and down.
	// +optional
	DelayJitter *Duration `json:"delayJitter,omitempty"`
	// BandwidthLimit is in bytes per second.
	// +kubebuilder:validation:Minimum=1
	// +optional
	BandwidthLimit *int64 `json:"bandwidthLimit,omitempty"`
	// HTTP restricts drop and delay to HTTP requests without TLS, by method and path.
	// +optional
	HTTP *HTTPFilter `json:"http,omitempty"`
}

// NetworkHost is a peer.
type NetworkHost struct {
	// Host is an IP address, a CIDR or a name; empty: any.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Host string `json:"host,omitempty"`
	// Port of the peer (egress) or of the target (ingress); 0: any.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`
	// Protocol is tcp or udp; empty: both.
	// +kubebuilder:validation:Enum=tcp;udp
	// +optional
	Protocol string `json:"protocol,omitempty"`
	// Flow is the direction in which connections are opened.
	// +kubebuilder:validation:Enum=egress;ingress
	// +kubebuilder:default=egress
	Flow string `json:"flow,omitempty"`
}

// NetworkService is a Kubernetes service.
type NetworkService struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// Ports of the service; default: all.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	// +listType=atomic
	Ports []int32 `json:"ports,omitempty"`
}

// HTTPFilter matches HTTP requests.
type HTTPFilter struct {
	// Methods such as GET; default: all.
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=16
	// +optional
	// +listType=set
	Methods []string `json:"methods,omitempty"`
	// Paths are prefixes of a request's path; default: all.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=512
	// +optional
	// +listType=set
	Paths []string `json:"paths,omitempty"`
}

// APIFault disturbs a target's requests to the Kubernetes API.
//
// +kubebuilder:validation:XValidation:rule="(has(self.status) ? 1 : 0) + (has(self.hang) && self.hang ? 1 : 0) + (has(self.lost) && self.lost ? 1 : 0) + (has(self.delay) ? 1 : 0) >= 1",message="at least one of status, delay, hang and lost is required"
// +kubebuilder:validation:XValidation:rule="(has(self.status) ? 1 : 0) + (has(self.hang) && self.hang ? 1 : 0) + (has(self.lost) && self.lost ? 1 : 0) <= 1",message="status, hang and lost exclude each other"
type APIFault struct {
	// Verbs as in RBAC: get, list, watch, create, update, patch, delete, deletecollection; default: all.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Enum=get;list;watch;create;update;patch;delete;deletecollection
	// +optional
	// +listType=set
	Verbs []string `json:"verbs,omitempty"`
	// Resources as in a URL: statefulsets, statefulsets.apps, pods/status; default: all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	// +listType=set
	Resources []string `json:"resources,omitempty"`
	// Namespaces of the objects; default: all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	// +listType=set
	Namespaces []string `json:"namespaces,omitempty"`
	// Names of the objects; default: all.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +optional
	// +listType=set
	Names []string `json:"names,omitempty"`
	// Percentage is the share of the matching requests that are disturbed.
	// +kubebuilder:default=100
	Percentage *Percentage `json:"percentage,omitempty"`
	// Status is the HTTP status of the answer; the API server does not get the request.
	// +kubebuilder:validation:Minimum=400
	// +kubebuilder:validation:Maximum=599
	// +optional
	Status *int32 `json:"status,omitempty"`
	// RetryAfter is sent with Status, rounded up to seconds.
	// +optional
	RetryAfter *Duration `json:"retryAfter,omitempty"`
	// Delay is the time that a request waits before it goes on to the API server.
	// +optional
	Delay *Duration `json:"delay,omitempty"`
	// Hang leaves requests without an answer until the client gives up or the disruption ends.
	// +optional
	Hang bool `json:"hang,omitempty"`
	// Lost lets the API server carry the request out and loses its answer: the connection breaks.
	// +optional
	Lost bool `json:"lost,omitempty"`
}

// DNS changes the answers to a target's DNS queries.
type DNS struct {
	// Records say which names are answered how. The first that matches counts.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Records []DNSRecord `json:"records"`
}

// DNSRecord is a wrong answer.
//
// +kubebuilder:validation:XValidation:rule="has(self.addresses) != has(self.fault)",message="either addresses or fault is required"
type DNSRecord struct {
	// Name is a host name, or *.example.com for all names below one.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Addresses is the answer: IP addresses.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	// +optional
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
	// Fault is what goes wrong: nxdomain (no such name), servfail (the server fails), drop (no answer) or random (each
	// time another unused address from 198.18.0.0/15).
	// +kubebuilder:validation:Enum=nxdomain;servfail;drop;random
	// +optional
	Fault string `json:"fault,omitempty"`
}

// CPUPressure takes processor time beside the target, within its limits.
type CPUPressure struct {
	// Load is the share of the target's processors, in percent.
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Load *int32 `json:"load,omitempty"`
}

// MemoryPressure takes memory beside the target, within its limits.
type MemoryPressure struct {
	// Target is the share of the target's memory limit (or the node's memory) that is in use in the end, in percent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Target int32 `json:"target"`
	// Ramp is the time in which the use grows; default: at once.
	// +optional
	Ramp *Duration `json:"ramp,omitempty"`
}

// DiskPressure limits the throughput of the disk at a path.
//
// +kubebuilder:validation:XValidation:rule="has(self.readBytesPerSecond) || has(self.writeBytesPerSecond)",message="readBytesPerSecond or writeBytesPerSecond is required"
type DiskPressure struct {
	// Path in the target.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path"`
	// +kubebuilder:validation:Minimum=1
	// +optional
	ReadBytesPerSecond *int64 `json:"readBytesPerSecond,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +optional
	WriteBytesPerSecond *int64 `json:"writeBytesPerSecond,omitempty"`
}

// DiskFailure makes operations with files fail.
type DiskFailure struct {
	// Paths are directories or files in the target; what is below them fails too.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^/.*$`
	// +listType=set
	Paths []string `json:"paths"`
	// Operations that fail: open (which includes creating files and listing directories), read, write and sync (fsync).
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=open;read;write;sync
	// +kubebuilder:default={open}
	// +listType=set
	Operations []string `json:"operations,omitempty"`
	// Error is what the operation returns.
	// +kubebuilder:validation:Enum=EIO;ENOSPC;EACCES;EROFS;ENOENT;EDQUOT;EMFILE
	// +kubebuilder:default=EIO
	Error string `json:"error,omitempty"`
	// Percentage of the operations that fail.
	// +kubebuilder:default=100
	Percentage *Percentage `json:"percentage,omitempty"`
}

// ContainerFailure ends the target's containers, again after each restart, as long as the disruption lasts.
type ContainerFailure struct {
	// Signal is TERM or KILL.
	// +kubebuilder:validation:Enum=TERM;KILL
	// +kubebuilder:default=KILL
	Signal string `json:"signal,omitempty"`
	// Once leaves restarted containers alone.
	// +optional
	Once bool `json:"once,omitempty"`
}

// NodeFailure makes the target's node fail.
type NodeFailure struct {
	// Mode is notReady (its heartbeats stop) or gone (the Node object is deleted, as a cloud provider does when the
	// machine has gone, and is put back at the end).
	// +kubebuilder:validation:Enum=notReady;gone
	// +kubebuilder:default=notReady
	Mode string `json:"mode,omitempty"`
}

// PodReplacement moves a pod to another node, without its volumes if asked for.
type PodReplacement struct {
	// DeleteClaims also deletes the pod's PersistentVolumeClaims.
	// +optional
	DeleteClaims bool `json:"deleteClaims,omitempty"`
	// GracePeriod for the pod; default: its own.
	// +optional
	GracePeriod *Duration `json:"gracePeriod,omitempty"`
}

// GRPC disturbs calls to the target's gRPC server.
type GRPC struct {
	// Port of the target's server.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Endpoints are the methods. Several entries of a method share its calls: the first ones, in their order, up to 100
	// percent.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Endpoints []GRPCEndpoint `json:"endpoints"`
}

// GRPCEndpoint disturbs one method.
//
// +kubebuilder:validation:XValidation:rule="has(self.error) != has(self.override)",message="either error or override is required"
type GRPCEndpoint struct {
	// Method is /package.Service/Method.
	// +kubebuilder:validation:Pattern=`^/[^/]+/[^/]+$`
	// +kubebuilder:validation:MaxLength=512
	Method string `json:"method"`
	// Error is a gRPC status code.
	// +kubebuilder:validation:Enum=CANCELED;UNKNOWN;INVALID_ARGUMENT;DEADLINE_EXCEEDED;NOT_FOUND;ALREADY_EXISTS;PERMISSION_DENIED;RESOURCE_EXHAUSTED;FAILED_PRECONDITION;ABORTED;OUT_OF_RANGE;UNIMPLEMENTED;INTERNAL;UNAVAILABLE;DATA_LOSS;UNAUTHENTICATED
	// +optional
	Error string `json:"error,omitempty"`
	// Override is the answer instead: empty, an empty message of whatever type.
	// +kubebuilder:validation:Enum=empty
	// +optional
	Override string `json:"override,omitempty"`
	// Percentage of the calls.
	// +kubebuilder:default=100
	Percentage *Percentage `json:"percentage,omitempty"`
}
