// Package monoplane runs a whole pod control plane inside a Go program: embedded etcd, the Kubernetes API
// over gRPC and REST, the scheduler, the controllers and one or more node agents.
//
//	cluster, err := monoplane.Start(ctx, monoplane.Config{DataDir: dir, Runtime: monoplane.FakeRuntime()})
//	if err != nil { ... }
//	defer cluster.Stop(context.Background())
//	pods := cluster.Client().Pods
//
// Without Listen and GRPCListen no socket is opened, and with the fake runtime the cluster can run inside a
// testing/synctest bubble, where hours pass in milliseconds. Any number of clusters can run in one process.
//
// Guarantees: Start returns a cluster that accepts requests, or an error that says in one line what was wrong
// and leaves nothing behind but the data directory. An acknowledged write survives the death of the process
// and of the machine. Stop leaves no goroutine. Pods on the host runtime go on when the cluster stops, unless
// StopPods was called; the next Start on the same directory adopts them.
//
// The package does not read flags, the environment or signals; cmd/monoplane does.
package monoplane

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1 "monoplane.dev/api/core/v1"
	"monoplane.dev/apiserver/audit"
	"monoplane.dev/client/election"
	"monoplane.dev/controllers"
	"monoplane.dev/controllers/controller"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/rules/podrange"
	"monoplane.dev/rules/servicerange"
	"monoplane.dev/rules/taints"
	"monoplane.dev/scheduler/configfile"
)

// Config says what to start. The zero value of every field but DataDir is a good default.
type Config struct {
	// DataDir holds everything that the cluster keeps. Required.
	DataDir string
	// Listen is the address of the REST API, such as "127.0.0.1:6443"; port 0 picks a free one. Empty: no REST.
	Listen string
	// GRPCListen is the address of the gRPC API. Empty: gRPC only in-process, through Client.
	GRPCListen string
	// Runtime runs the pods; HostRuntime by default, which needs no privileges and changes nothing on the machine, as
	// tests that embed a cluster want it. The program monoplane runs images where it can, with a runtime of package
	// nodeagent/runtime/ocinode.
	Runtime Runtime
	// Nodes is the number of nodes; 1 by default, -1 for none. More than one needs a runtime that simulates.
	Nodes int
	// NodeName is the name of the node, by default the machine's; with several nodes a prefix of their names.
	NodeName string
	// NodeLabels are put on every node, such as topology.kubernetes.io/region, when it is first registered. Those that
	// describe the machine (hostname, os, arch, zone, region, instance type) are kept up to date; other labels of a node
	// that exists are left as they are, and none is removed, as with kubelet's --node-labels. spec: NODE-6
	NodeLabels map[string]string
	// NodeTaints are put on every node when it is first registered. Those of a node that exists are left as they are, as
	// with kubelet's --register-with-taints. spec: NODE-6
	NodeTaints []*corev1.Taint
	// Machine says what the agent does for the machine that its pods run on. Simulated nodes have none.
	Machine MachineConfig
	// Zones spreads simulated nodes evenly over so many zones, topology.kubernetes.io/zone=zone-1 and so on; 0 for no
	// zones.
	Zones int
	// EtcdEndpoints are the client URLs of an etcd cluster to use instead of the embedded one.
	EtcdEndpoints []string
	// EtcdTLS is for https URLs among EtcdEndpoints; nil for the system's certificates and none for the client.
	EtcdTLS *tls.Config
	// EtcdMaintenance lets the server make room in that cluster when it is full: compact and defragment it, which holds
	// up all who use it, and switch its alarm NOSPACE off. The embedded etcd is always given room so.
	EtcdMaintenance bool
	// UnsafeNoFsync does not wait for the disk: a crash of the machine may lose acknowledged writes.
	UnsafeNoFsync bool
	// TerminatedPodGCThreshold is how many terminal pods may stay before PodGC deletes the oldest (GC-4);
	// podgc.DefaultThreshold by default, negative for no limit.
	TerminatedPodGCThreshold int
	// Controllers are those that run: "*" for all, NAME for one, -NAME for all but one, such as "*", "-deployment" beside
	// a controller of one's own. All by default. The server goes on to serve the kinds of those that do not run.
	Controllers []string
	// NodeLifecycle says when nodes count as lost, and how fast their pods are evicted (NODE-3).
	NodeLifecycle NodeLifecycleConfig
	// LeaderElection says how soon the controllers of another server take over, where several share EtcdEndpoints: those
	// of one work at a time. It is the same for all of them.
	LeaderElection LeaderElectionConfig
	// MaxEvents is how many events are kept in the cluster, beside their hour (OBJ-13); of more, the oldest are deleted.
	// 10 000 by default, negative for no limit.
	MaxEvents int
	// Scheduler configures the scheduler.
	Scheduler SchedulerConfig
	// Audit says which requests are recorded.
	Audit AuditConfig
	// ServiceClusterIPRange is where the cluster IPs of Services come from: a range, or two of different families with a
	// comma between them, such as "10.96.0.0/16,fd00:10:96::/108". 10.96.0.0/16 by default. Servers of one etcd should
	// have the same.
	ServiceClusterIPRange string
	// ClusterDomain is the domain of the names of Services and pods; "cluster.local" by default.
	ClusterDomain string
	// ServiceNodePortRange is where the node ports of Services come from; "30000-32767" by default.
	ServiceNodePortRange string
	// ClusterCIDR is where the addresses of pods come from, which the runtime oci gives them: a range, or two of
	// different families with a comma between them. Each node is given a part of NodeCIDRMaskIPv4 or NodeCIDRMaskIPv6
	// bits, /24 and /64 by default. Empty gives nodes nothing. It must not overlap with ServiceClusterIPRange.
	ClusterCIDR                        string
	NodeCIDRMaskIPv4, NodeCIDRMaskIPv6 int
	// DefaultStorageClass is the name of the storage class that a cluster is given at its first start for claims that
	// name none, unless it has one: directories of the nodes, made on the node of the first pod and removed with their
	// claims. Whoever changes or deletes the class has it so. Empty gives none.
	DefaultStorageClass string
	// Ingress says where requests for Ingresses arrive; by default none is served.
	Ingress IngressConfig
	// PodSecurity is what holds for the security of pods beside the labels of namespaces.
	PodSecurity PodSecurityConfig
	// ConfirmOriginalDead says, for this start only, that a DataDir that is a copy, or was restored from a snapshot, may
	// take over the nodes of the original: that is dead with all its pods, and will not come back. Without it such a
	// node is refused; see Cluster.Refused. Start fails when there is nothing to confirm.
	ConfirmOriginalDead bool
	// Locked, if not nil, is called when DataDir is locked for this cluster, before anything in it is used: for programs
	// that keep files of their own there. An error ends the start.
	Locked func() error
	// Emptied, if not nil, is called when a cluster ends that has left nothing of its pods on this machine, while DataDir
	// is still locked: StopPods has stopped them, and nothing has gone wrong since. Programs that keep files for what is
	// left remove them then. Its error is Stop's.
	Emptied func() error
	// Version is what the server says of itself; "dev" by default.
	Version string
	// Logger gets what an operator should know; nothing is logged by default.
	Logger *slog.Logger

	// controllers is what Controllers says.
	controllers []controller.Declaration
	// services are the ranges of Services.
	services  servicerange.Ranges
	podRanges []podrange.Cluster
	// scheduling is what Scheduler says.
	scheduling *configfile.Config
	// auditPolicy is what Audit says; nil without.
	auditPolicy *audit.Policy
	// onMutation is told when somebody has changed an object that the store holds. For tests.
	onMutation func(error)
}

// PodSecurityConfig says which of the Pod Security Standards hold where a namespace says nothing, and for whom none
// do.
type PodSecurityConfig struct {
	// Defaults are the labels pod-security.kubernetes.io/... of namespaces that have none of that name, without the
	// prefix, such as "enforce": "baseline". None is privileged: anything goes.
	Defaults map[string]string
	// ExemptNamespaces, ExemptUsers and ExemptRuntimeClasses are held to none. An exempt user is one that creates pods:
	// most are created by controllers.
	ExemptNamespaces, ExemptUsers, ExemptRuntimeClasses []string
}

// NodeLifecycleConfig says when nodes count as lost, and how fast their pods are evicted. Agents send heartbeats five
// times as often as a node's grace of MonitorGrace asks for, and every 10 s at least. Zero values are the defaults.
type NodeLifecycleConfig = controller.NodeLifecycle

// LeaderElectionConfig are the times of the election of the server whose controllers work. Zero values are the
// defaults, which are those of Kubernetes' controller manager.
type LeaderElectionConfig = election.Times

// checkDomain completes the cluster domain, or says what is wrong with it.
func (cfg *Config) checkDomain() error {
	cfg.ClusterDomain = strings.TrimSuffix(cmp.Or(cfg.ClusterDomain, "cluster.local"), ".")
	if problems := validation.IsDNS1123Subdomain(cfg.ClusterDomain); len(problems) > 0 {
		return fmt.Errorf("the cluster domain %q is not a domain: %s", cfg.ClusterDomain, strings.Join(problems, "; "))
	}
	return nil
}

// readRanges reads the ranges of Services.
func (cfg *Config) readRanges() error {
	cfg.services, cfg.podRanges = servicerange.Ranges{}, nil
	var addresses, ports error
	if cfg.ServiceClusterIPRange != "" {
		cfg.services.Addresses, addresses = servicerange.ParseAddresses(cfg.ServiceClusterIPRange)
	}
	if cfg.ServiceNodePortRange != "" {
		cfg.services.Ports, ports = servicerange.ParsePorts(cfg.ServiceNodePortRange)
	}
	cfg.services = cfg.services.Complete()
	if err := errors.Join(addresses, ports); err != nil || cfg.ClusterCIDR == "" {
		return err
	}
	var err error
	cfg.podRanges, err = podrange.Parse(cfg.ClusterCIDR, cfg.NodeCIDRMaskIPv4, cfg.NodeCIDRMaskIPv6,
		cfg.services.Prefixes())
	if n, ok := cfg.Runtime.(Networked); err != nil || !ok || !n.HasNetwork() {
		return err
	}
	// The Service kubernetes and that of the DNS have addresses of the first range.
	first := cfg.services.API()
	sameFamily := func(r podrange.Cluster) bool { return r.Prefix().Addr().Is4() == first.Is4() }
	if !slices.ContainsFunc(cfg.podRanges, sameFamily) {
		return fmt.Errorf("pods with addresses of %s reach neither the API nor the DNS, which have addresses of %s: "+
			"the range of pods has to have one of that family too, or that of Services another first",
			cfg.ClusterCIDR, cfg.services.Prefixes()[0])
	}
	return nil
}

// complete checks cfg and fills in the defaults. All mistakes are reported at once.
func (cfg Config) complete() (Config, error) {
	var errs []error
	if cfg.DataDir == "" {
		errs = append(errs, errors.New("DataDir is required"))
	}
	if cfg.Runtime == nil {
		cfg.Runtime = HostRuntime()
	}
	switch {
	case cfg.Nodes == 0:
		cfg.Nodes = 1
	case cfg.Nodes < -1:
		errs = append(errs, fmt.Errorf("the number of nodes is %d; it must be -1 or more", cfg.Nodes))
	case cfg.Nodes > 1 && !cfg.Runtime.Simulated():
		errs = append(errs, fmt.Errorf("%d nodes need the fake runtime: real pods run on one node per machine", cfg.Nodes))
	}
	if cfg.NodeName == "" {
		name, err := hostinfo.NodeName(os.Hostname)
		if err != nil {
			errs = append(errs, err)
		}
		cfg.NodeName = name
	} else if problems := validation.IsDNS1123Subdomain(cfg.NodeName); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("%q cannot name a node: %s", cfg.NodeName, problems[0]))
	}
	errs = append(errs, hostinfo.CheckLabels(cfg.NodeLabels), taints.Check(cfg.NodeTaints), cfg.checkZones())
	errs = append(errs, cfg.checkMachine(), cfg.readRanges(), cfg.checkDomain())
	if problems := validation.IsDNS1123Subdomain(cfg.DefaultStorageClass); cfg.DefaultStorageClass != "" &&
		len(problems) > 0 {
		errs = append(errs, fmt.Errorf("%q cannot name a storage class: %s", cfg.DefaultStorageClass, problems[0]))
	}
	if cfg.MaxEvents == 0 {
		cfg.MaxEvents = 10_000
	}
	chosen, err := controllers.Chosen(cfg.Controllers)
	if err != nil {
		errs = append(errs, err)
	}
	if cfg.controllers = chosen; err == nil {
		errs = append(errs, cfg.checkIngress())
	}
	lifecycle, err := cfg.NodeLifecycle.Complete()
	if err != nil {
		errs = append(errs, err)
	}
	cfg.NodeLifecycle = lifecycle
	if cfg.LeaderElection, err = cfg.LeaderElection.Complete(); err != nil {
		errs = append(errs, err)
	}
	scheduling, err := cfg.Scheduler.read()
	if err != nil {
		errs = append(errs, err)
	}
	cfg.scheduling = scheduling
	if cfg.auditPolicy, err = cfg.Audit.read(); err != nil {
		errs = append(errs, err)
	}
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return cfg, errors.Join(errs...)
}

// stopGrace bounds how long the parts of a cluster may take to stop.
const stopGrace = 20 * time.Second

// networkGrace bounds how long it may take to take away the network of a node.
const networkGrace = 20 * time.Second

// reportEvery is the least time between two reports of the pods of all nodes.
const reportEvery = 100 * time.Millisecond
