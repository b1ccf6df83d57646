package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/client"
	"monoplane.dev/client/record"
	"monoplane.dev/nodeagent/cricheck"
	"monoplane.dev/nodeagent/diskuse"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/gc"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/podcgroup"
	"monoplane.dev/nodeagent/podstate"
	"monoplane.dev/nodeagent/pullrecord"
	"monoplane.dev/nodeagent/runtime/stream"
	"monoplane.dev/nodeagent/shutdown"
	"monoplane.dev/rules/sysctls"
)

// Config says what an Agent works with. NodeName, Client, Runtime and Images are required; the rest has defaults.
type Config struct {
	// NodeName is the name of the node; the client's identity is system:node:NAME.
	NodeName string
	// Client reaches the API.
	Client *client.Client
	// Runtime and Images reach the CRI runtime.
	Runtime runtimeapi.RuntimeServiceClient
	// Images is the runtime's image service.
	Images runtimeapi.ImageServiceClient
	// Streams talks with what runs in containers; when it is nil, that goes by the addresses that Runtime answers with.
	Streams stream.Runtime
	// Dial connects probes and hooks to pods that the machine's own sockets may not reach; net.Dialer's DialContext if
	// nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Remove removes a directory in which containers have left what this process may not remove itself; nil where there
	// is no such thing.
	Remove func(ctx context.Context, dir string) error

	// Give gives a volume to a group of pods, where the groups of pods are others than those of this process; by default
	// they are the same. See volumes.Config.
	Give func(ctx context.Context, dir string, group int64, forReading bool, policy string) error

	// Measure measures what pods store in a directory, where this process may not read all of that; diskuse.Of if nil.
	Measure func(ctx context.Context, dir string) (diskuse.Size, error)

	// Limits are sentences that say what pods cannot do on this node, though they could elsewhere. They are told in an
	// event of the node each time the agent begins.
	Limits []string

	// Owner marks this agent's pods in a runtime that others use too: pods without the mark are left alone. Empty when
	// the runtime is the agent's own; then every pod in it is the agent's.
	Owner string

	// PodLogDir is where the runtime writes the logs of all pods, one directory per pod (see criconfig.PodDir).
	// Empty for runtimes without logs.
	PodLogDir string
	// PodsDir has one directory for each pod, named by its uid, with all that the agent keeps for it but its logs:
	// volumes and files that containers see. Only simulated machines need none.
	PodsDir string
	// SeccompDir is the directory of the profiles that pods name by seccompProfile.localhostProfile. There are none when
	// it is empty.
	SeccompDir string
	// SeccompDefault gives containers that name no seccomp profile that of the runtime.
	SeccompDefault bool
	// Cgroups returns the cgroups of pods, which systemd may manage; those of this machine when it is nil.
	Cgroups func(systemd bool) *podcgroup.Groups
	// MemoryQoS asks for memory to be reserved and throttled by class where the machine has cgroup2 (QOS-3).
	MemoryQoS bool
	// VolumesDir is the absolute path of the directory in which volumes are made for claims; empty for none. The Node
	// says it.
	VolumesDir string
	// DataDir is a directory on the file system that pods use, for capacity and disk pressure; PodLogDir when empty.
	DataDir string
	// APIServer is the address at which the API server listens, for the variables by which pods find it. They have none
	// when it is not valid.
	APIServer netip.AddrPort
	// APIService is where pods with a network of their own reach it: the Service kubernetes. Not valid where no traffic
	// to Services is carried.
	APIService netip.AddrPort
	// ClusterDomain is the domain of the names of pods and Services; cluster.local when empty.
	ClusterDomain string
	// ClusterDNS are the addresses of the cluster's resolver, which pods are told unless they choose another. Without
	// any they are told the machine's.
	ClusterDNS []netip.Addr
	// MachineReachesServices tells whether the machine itself reaches Services, the resolver among them; pods on its
	// network are told the machine's resolvers where it does not. It does when this is nil.
	MachineReachesServices func() bool
	// StateDir is a directory of this agent's own, in which it notes that the node was stopped in order, so that what it
	// stopped restarts without back-off; nothing is noted when it is empty.
	StateDir string
	// Machine describes the machine; read from the system when its Capacity is nil.
	Machine hostinfo.Facts
	// Addresses returns the machine's addresses as Machine.IPs has them. The node takes over, with its next heartbeat,
	// what has changed; a machine that has only its loopback's keeps those that it had. When it is nil, a Machine that
	// was given stays as it is, and one that is read is asked again.
	Addresses func() []string
	// ManifestDir is a directory with the manifests of static pods, or one such file; it need not exist. ManifestURL
	// answers with a manifest when it is asked with ManifestHeader. Both may be empty. spec: STATIC-1
	ManifestDir, ManifestURL string
	// ManifestHeader may be nil.
	ManifestHeader http.Header
	// ManifestClient asks the URL; http.DefaultClient when nil.
	ManifestClient *http.Client
	// CompletePod gives a static pod the defaults of the API and checks it by its rules. Required where there are
	// manifests.
	CompletePod func(*corev1.Pod) error
	// SystemReserved and KubeReserved are kept from pods, by resource, such as cpu: 500m. Nothing is enforced: the node
	// has less to allocate.
	SystemReserved, KubeReserved map[string]string
	// MaxPods is how many pods the node takes; what Machine says when zero. PodsPerCore bounds it further when positive.
	MaxPods, PodsPerCore int
	// PodMaxPIDs is how many processes and threads each pod may have; any number when not positive.
	PodMaxPIDs int64
	// AllowedUnsafeSysctls are the kernel parameters that pods may set beyond those that are safe for others: names, and
	// beginnings of names with an asterisk, such as net.core.*. spec: SEC-1
	AllowedUnsafeSysctls []string
	// Eviction says when the machine has too little left, and what happens then. spec: QOS-2
	Eviction eviction.Settings
	// ImageGC says when images that nobody uses go.
	ImageGC gc.Policy
	// PullCredentials says for which images it counts with whose credentials they came. Without a StateDir nothing is
	// noted of that, and every image on the node is for all its pods.
	PullCredentials pullrecord.Policy
	// KernelLog is where the kernel says which processes it kills for want of memory, oom.Log; empty for nowhere.
	KernelLog string
	// Shutdown says how much time the pods have when the machine goes down (ShutDown); none when it is empty.
	Shutdown shutdown.Plan
	// Readings says what the machine has left; it is measured when nil, unless the machine is Simulated.
	Readings func(context.Context) eviction.Readings
	// Labels are given to the node when it is first registered. Those that describe the machine, such as
	// topology.kubernetes.io/zone, are kept up to date, as kubelet does. spec: NODE-6
	Labels map[string]string
	// Taints are set when the node is first registered.
	Taints []*corev1.Taint
	// Version is the agent's, for the node's status.
	Version string
	// Simulated says that the machine does not exist: its pressure is not measured, and volumes need no mounts.
	Simulated bool

	// Starting bounds how many agents of one process start at the same time, by its capacity; nil for no bound.
	Starting chan struct{}
	// Recorder records events of pods and the node; none are recorded when it is nil. The caller runs it. Agents of
	// many simulated nodes can share one.
	Recorder *record.Recorder
	// Policy holds the pods' periods; podstate.DefaultPolicy when zero.
	Policy podstate.Policy

	// HeartbeatInterval is the time between renewals of the Lease, 10 s; LeaseDuration what it states, 40 s;
	// StatusInterval the longest time between writes of the node's status, 5 min. spec: NODE-1
	HeartbeatInterval, LeaseDuration, StatusInterval time.Duration
	// RelistInterval is the time between full looks at the runtime while it sends events, 1 min; PollInterval
	// while it does not, 1 s.
	RelistInterval, PollInterval time.Duration
	// LogMaxSize is the size in bytes from which a log is rotated, 10 MiB; LogMaxFiles how many files of one
	// instance are kept, 5. spec: CTR-8
	LogMaxSize int64
	// LogMaxFiles counts the file being written too.
	LogMaxFiles int
	// NodeWatched says that the caller watches the Node object and calls LookAtNode when it is deleted: one watch can do
	// for many simulated nodes. Otherwise the agent watches its own.
	NodeWatched bool
	// NoStreams leaves out serving logs, exec, attach and port-forward to the API server.
	NoStreams bool

	// Logger defaults to none.
	Logger *slog.Logger

	thresholds []eviction.Threshold // what Eviction says
	sysctls    sysctls.Allowed      // what AllowedUnsafeSysctls says, and the safe ones
}

func (c *Config) complete() error {
	switch {
	case c.NodeName == "":
		return errors.New("nodeagent: NodeName is missing")
	case c.Client == nil:
		return errors.New("nodeagent: Client is missing")
	case c.Runtime == nil || c.Images == nil:
		return errors.New("nodeagent: Runtime or Images is missing")
	case c.CompletePod == nil && (c.ManifestDir != "" || c.ManifestURL != ""):
		return errors.New("nodeagent: CompletePod is missing")
	}
	if err := errors.Join(c.Shutdown.Check(), c.PullCredentials.Check()); err != nil {
		return fmt.Errorf("nodeagent: %w", err)
	}
	if c.ClusterDomain == "" {
		c.ClusterDomain = "cluster.local"
	}
	if c.Measure == nil {
		c.Measure = diskuse.Of
	}
	if c.Streams == nil {
		c.Streams = stream.Remote{Runtime: c.Runtime}
	}
	c.Runtime, c.Images = cricheck.Runtime(c.Runtime), cricheck.Images(c.Images)
	if c.DataDir == "" {
		c.DataDir = c.PodLogDir
	}
	if c.Machine.Capacity == nil {
		c.Machine = hostinfo.Read(c.DataDir)
		if c.Addresses == nil {
			c.Addresses = hostinfo.Addresses
		}
	}
	if err := c.completeCapacity(); err != nil {
		return err
	}
	var err error
	if c.sysctls, err = sysctls.Allow(c.Machine.Info.GetKernelVersion(), c.AllowedUnsafeSysctls); err != nil {
		return err
	}
	if c.Cgroups == nil {
		c.Cgroups = podcgroup.OfMachine
	}
	if c.Policy == (podstate.Policy{}) {
		c.Policy = podstate.DefaultPolicy()
	}
	for _, d := range []struct {
		value   *time.Duration
		missing time.Duration
	}{
		{&c.HeartbeatInterval, 10 * time.Second},
		{&c.LeaseDuration, 40 * time.Second},
		{&c.StatusInterval, 5 * time.Minute},
		{&c.RelistInterval, time.Minute},
		{&c.PollInterval, time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.missing
		}
	}
	if c.LogMaxSize <= 0 {
		c.LogMaxSize = 10 << 20
	}
	if c.LogMaxFiles < 2 {
		c.LogMaxFiles = 5
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("node", c.NodeName)
	return nil
}
