package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"monoplane.dev"
	"monoplane.dev/apiserver/auth"
	"monoplane.dev/controllers/podgc"
	"monoplane.dev/nodeagent/hostinfo"
	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/runtime/ocinode"
	"monoplane.dev/rules/podrange"
	"monoplane.dev/rules/servicerange"
	"monoplane.dev/rules/taints"
)

type upOptions struct {
	dataDir         *string
	listen          string
	grpcListen      string
	runtime         string
	runtimeEndpoint string
	fakeFinish      time.Duration
	images          imageOptions
	cni             cniOptions
	nodes           int
	nodeName        string
	nodeLabels      map[string]string
	nodeTaints      []string
	zones           int
	clusterDomain   string
	serviceIPs      string
	servicePorts    string
	clusterCIDR     string
	nodeMask4       int
	nodeMask6       int
	etcdEndpoints   []string
	etcdTLS         etcdTLS
	etcdMaintenance bool
	unsafeNoFsync   bool
	podGCThreshold  int
	maxEvents       int
	schedulerConfig string
	logLevel        string
	originalDead    bool
	machine         machineOptions
	storageClass    string
	controllers     []string
	nodeLifecycle   monoplane.NodeLifecycleConfig
	audit           auditOptions
	election        monoplane.LeaderElectionConfig
	podSecurity     monoplane.PodSecurityConfig
	ingress         ingressOptions
}

func (o *upOptions) add(flags *pflag.FlagSet) {
	o.dataDir = addDataDir(flags)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:6443", "address of the REST API; port 0 picks a free one")
	flags.StringVar(&o.grpcListen, "grpc-listen", "127.0.0.1:6444", "address of the gRPC API; port 0 picks a free one")
	flags.StringVar(&o.runtime, "runtime", "auto",
		`what runs the pods: "oci" (containers of images, and of image "host"), "host" (processes of this machine, image `+
			`"host"), "auto" (oci where this machine lets it, else host) or "fake" (none; for tests of controllers)`)
	o.images.add(flags)
	flags.StringVar(&o.runtimeEndpoint, "runtime-endpoint", "",
		"socket of a CRI runtime to use instead, such as unix:///run/containerd/containerd.sock")
	o.cni.add(flags)
	flags.IntVar(&o.nodes, "nodes", 1, "number of nodes; more than one only with --runtime=fake")
	flags.StringVar(&o.nodeName, "node-name", "",
		"name of the node (default: this machine's name); with --nodes a prefix")
	flags.StringToStringVar(&o.nodeLabels, "node-labels", nil,
		"labels for the node when it is first registered, such as topology.kubernetes.io/zone=a,disk=ssd. Zone, region "+
			"and instance type are kept up to date")
	o.machine.add(flags)
	flags.StringSliceVar(&o.nodeTaints, "register-with-taints", nil,
		"taints for the node when it is first registered, such as dedicated=db:NoSchedule")
	flags.IntVar(&o.zones, "zones", 0,
		"spread simulated nodes over so many zones, topology.kubernetes.io/zone=zone-1 and so on")
	flags.DurationVar(&o.fakeFinish, "fake-finish-after", time.Second,
		"with --runtime fake: how long init containers and the containers of Jobs run of which no annotation says when "+
			"they exit. 0 for ever")
	flags.StringVar(&o.clusterDomain, "cluster-domain", "cluster.local",
		"domain of the names of Services and pods, such as web.default.svc.cluster.local")
	flags.StringVar(&o.serviceIPs, "service-cluster-ip-range", servicerange.DefaultAddresses,
		"where the cluster IPs of Services come from; two ranges with a comma between them for IPv4 and IPv6")
	flags.StringVar(&o.servicePorts, "service-node-port-range", servicerange.DefaultPorts,
		"where the node ports of Services come from")
	flags.StringVar(&o.clusterCIDR, "cluster-cidr", "",
		"where the addresses of pods come from, such as "+podrange.Default+", of which each node is given a part; two "+
			"ranges with a comma between them for IPv4 and IPv6 (default with runtime oci: that, or the next one that this "+
			"machine does not use)")
	flags.IntVar(&o.nodeMask4, "node-cidr-mask-size-ipv4", podrange.DefaultMask4,
		"how many bits the part of a node has of an IPv4 range of --cluster-cidr")
	flags.IntVar(&o.nodeMask6, "node-cidr-mask-size-ipv6", podrange.DefaultMask6,
		"how many bits the part of a node has of an IPv6 range of --cluster-cidr")
	flags.StringSliceVar(&o.etcdEndpoints, "etcd-endpoints", nil,
		"URLs of an external etcd cluster to use instead of the embedded one")
	o.etcdTLS.add(flags)
	flags.BoolVar(&o.etcdMaintenance, "etcd-maintenance", false,
		"make room in the external etcd when it is full: compact and defragment it, which holds up all who use it, and "+
			"switch its alarm NOSPACE off. The embedded one is always given room so")
	flags.IntVar(&o.podGCThreshold, "terminated-pod-gc-threshold", podgc.DefaultThreshold,
		"how many ended pods are kept; above that the oldest are deleted. 0 for all")
	flags.StringSliceVar(&o.controllers, "controllers", []string{"*"},
		"controllers that run: * for all, NAME for one, -NAME for all but one, such as *,-deployment beside a controller "+
			"of one's own")
	flags.StringVar(&o.storageClass, "default-storage-class", "standard",
		"storage class that a cluster is given at its first start, for claims that name none: directories of the nodes, "+
			`removed with their claims. "" for none`)
	addNodeLifecycle(flags, &o.nodeLifecycle)
	addElection(flags, &o.election)
	addPodSecurity(flags, &o.podSecurity)
	flags.IntVar(&o.maxEvents, "max-events", 10_000,
		"how many events are kept, for an hour at most; above that the oldest are deleted. 0 for any number")
	flags.StringVar(&o.schedulerConfig, "scheduler-config", "",
		"file with a KubeSchedulerConfiguration: profiles, plugins and their arguments")
	o.audit.add(flags)
	o.ingress.add(flags)
	flags.BoolVar(&o.unsafeNoFsync, "unsafe-no-fsync", false,
		"do not wait for the disk: faster, and a crash of the machine may lose data. For throwaway clusters")
	addConfirmation(flags, &o.originalDead)
	flags.StringVar(&o.logLevel, "log-level", "warn",
		`what is logged to stderr: "debug", "info", "warn" or "error"; the audit always is`)
}

// addNodeLifecycle adds the flags of Kubernetes' controller manager that say when a node counts as lost.
func addNodeLifecycle(flags *pflag.FlagSet, n *monoplane.NodeLifecycleConfig) {
	d, _ := monoplane.NodeLifecycleConfig{}.Complete() // the defaults are valid
	flags.DurationVar(&n.MonitorPeriod, "node-monitor-period", d.MonitorPeriod, "time between two looks at all nodes")
	flags.DurationVar(&n.MonitorGrace, "node-monitor-grace-period", d.MonitorGrace,
		"how long nothing may be heard of a node before it counts as lost; the agents send heartbeats five times as "+
			"often, and every 10 s at least")
	flags.DurationVar(&n.StartupGrace, "node-startup-grace-period", d.StartupGrace,
		"the same for a node whose agent has never said how it is")
	flags.Float64Var(&n.EvictionRate, "node-eviction-rate", d.EvictionRate,
		"how many lost nodes of a zone are evicted in a second; 0 for none")
	flags.Float64Var(&n.SecondaryEvictionRate, "secondary-node-eviction-rate", d.SecondaryEvictionRate,
		"the same in a large zone of which much is lost; 0 for none")
	flags.IntVar(&n.LargeZone, "large-cluster-size-threshold", d.LargeZone,
		"number of nodes above which a zone is large; smaller ones of which much is lost are not evicted")
	flags.Float64Var(&n.UnhealthyZone, "unhealthy-zone-threshold", d.UnhealthyZone,
		"share of a zone's nodes, three at least, from which on much of it is lost")
}

// addElection adds the flags of Kubernetes' controller manager that say when another server takes over.
func addElection(flags *pflag.FlagSet, e *monoplane.LeaderElectionConfig) {
	d, _ := monoplane.LeaderElectionConfig{}.Complete() // the defaults are valid
	flags.DurationVar(&e.LeaseDuration, "leader-elect-lease-duration", d.LeaseDuration,
		"how long servers that share an etcd wait before the controllers of another take over from one that is silent")
	flags.DurationVar(&e.RenewDeadline, "leader-elect-renew-deadline", d.RenewDeadline,
		"how long the controllers of a server go on when it cannot renew its lease")
	flags.DurationVar(&e.RetryPeriod, "leader-elect-retry-period", d.RetryPeriod,
		"time between two attempts to get the lease, or to renew it")
}

// config checks the options and turns them into a cluster's configuration.
func (o *upOptions) config(stdout, stderr io.Writer) (monoplane.Config, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return monoplane.Config{}, fmt.Errorf(`--log-level: %q is not "debug", "info", "warn" or "error"`, o.logLevel)
	}
	dir, err := filepath.Abs(*o.dataDir)
	if err != nil {
		return monoplane.Config{}, fmt.Errorf("--data-dir: %w", err)
	}
	etcdTLS, err := o.etcdTLS.config()
	if err != nil {
		return monoplane.Config{}, err
	}
	machine, err := o.machine.config()
	if err != nil {
		return monoplane.Config{}, err
	}
	nodeTaints, err := taints.Parse(o.nodeTaints)
	if err != nil {
		return monoplane.Config{}, fmt.Errorf("--register-with-taints: %w", err)
	}
	audit, err := o.audit.config(stdout)
	if err != nil {
		return monoplane.Config{}, err
	}
	ingress, err := o.ingress.config()
	if err != nil {
		return monoplane.Config{}, err
	}
	cfg := monoplane.Config{
		DataDir:         dir,
		Ingress:         ingress,
		Audit:           audit,
		Machine:         machine,
		Listen:          o.listen,
		GRPCListen:      o.grpcListen,
		Nodes:           o.nodes,
		NodeName:        o.nodeName,
		NodeLabels:      o.nodeLabels,
		Zones:           o.zones,
		NodeTaints:      nodeTaints,
		EtcdEndpoints:   o.etcdEndpoints,
		EtcdTLS:         etcdTLS,
		EtcdMaintenance: o.etcdMaintenance,
		UnsafeNoFsync:   o.unsafeNoFsync,

		ClusterDomain:         o.clusterDomain,
		ServiceClusterIPRange: o.serviceIPs,
		ServiceNodePortRange:  o.servicePorts,
		ClusterCIDR:           o.clusterCIDR,
		NodeCIDRMaskIPv4:      o.nodeMask4,
		NodeCIDRMaskIPv6:      o.nodeMask6,

		ConfirmOriginalDead: o.originalDead,

		Version: version,
		Logger:  slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level, ReplaceAttr: nameAudit})),

		TerminatedPodGCThreshold: o.podGCThreshold,
		DefaultStorageClass:      o.storageClass,
		Controllers:              o.controllers,
		PodSecurity:              o.podSecurity,
		NodeLifecycle:            o.nodeLifecycle,
		LeaderElection:           o.election,
		MaxEvents:                o.maxEvents,
		Scheduler:                monoplane.SchedulerConfig{File: o.schedulerConfig},
	}
	// In a configuration 0 stands for the default.
	for _, rate := range []*float64{&cfg.NodeLifecycle.EvictionRate, &cfg.NodeLifecycle.SecondaryEvictionRate} {
		if *rate <= 0 {
			*rate = -1
		}
	}
	if o.nodeLifecycle.LargeZone <= 0 {
		cfg.NodeLifecycle.LargeZone = -1
	}
	if o.podGCThreshold <= 0 {
		cfg.TerminatedPodGCThreshold = -1
	}
	if o.maxEvents <= 0 {
		cfg.MaxEvents = -1
	}
	named := o.runtime
	if o.runtimeEndpoint != "" {
		named = ""
	}
	cni, err := o.cni.config(named, os.Geteuid())
	if err != nil {
		return monoplane.Config{}, err
	}
	switch {
	case o.runtimeEndpoint != "":
		cfg.Runtime = monoplane.CRIRuntime(o.runtimeEndpoint)
	case o.runtime == "host" || o.runtime == "auto" || o.runtime == "oci":
		if cfg.Runtime, err = o.machineRuntime(&cfg, cni, stderr); err != nil {
			return monoplane.Config{}, err
		}
	case o.runtime == "fake" && o.fakeFinish < 0:
		return monoplane.Config{}, fmt.Errorf("--fake-finish-after: %s is negative; 0 is for ever", o.fakeFinish)
	case o.runtime == "fake":
		cfg.Runtime = monoplane.UsedRuntime(o.fakeFinish)
	default:
		return monoplane.Config{}, fmt.Errorf(`--runtime: %q is not "oci", "host", "auto" or "fake"`, o.runtime)
	}
	return cfg, nil
}

// machineRuntime chooses between containers of images and processes of this machine.
func (o *upOptions) machineRuntime(
	cfg *monoplane.Config, cni *ocinode.CNI, stderr io.Writer,
) (monoplane.Runtime, error) {
	if o.runtime == "host" {
		return monoplane.HostRuntime(), nil
	}
	services, err := servicerange.ParseAddresses(o.serviceIPs)
	if err != nil {
		return nil, err
	}
	store, err := o.images.config()
	if err != nil {
		return nil, err
	}
	ranges := servicerange.Ranges{Addresses: services}.Prefixes()
	why := ocinode.Check()
	if why == nil {
		store.Log = cfg.Logger
		why = images.Check(store)
	}
	if why == nil && cfg.ClusterCIDR == "" && cni == nil {
		before, err := podRangeBefore(cfg.DataDir)
		if err != nil {
			return nil, err
		}
		cfg.ClusterCIDR, why = choosePodRange(before, ranges, ocinode.InUse, cfg.Logger)
	}
	switch {
	case why == nil:
		return ocinode.New(ocinode.Config{Images: store, ServiceRanges: ranges, CNI: cni}), nil
	case o.runtime == "oci":
		return nil, fmt.Errorf("--runtime=oci: %w", why)
	default:
		fmt.Fprintf(stderr, "Pods can have image \"host\" only (--runtime=host): %v\n", why)
		return monoplane.HostRuntime(), nil
	}
}

// nameAudit gives the audit's level its name.
func nameAudit(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == auth.LevelAudit {
		a.Value = slog.StringValue("AUDIT")
	}
	return a
}

func newUpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine",
		Long: `Starts a cluster on this machine and prints how to reach it.

Ctrl-C stops the pods, each with its own grace period, then the server; a second Ctrl-C stops the
server at once and leaves the pods running. SIGTERM leaves them running too. The next start on the
same data directory adopts pods that still run; monoplane down stops them.

A data directory that was copied, or restored from a snapshot, does not get the node: the pods may
still run where the data come from. The API serves, and nothing is started or stopped. Once the
original is dead with all its pods, --confirm-original-dead takes the node over.`,
		Example: "  monoplane up\n" +
			"  monoplane up --data-dir ~/clusters/one --listen 127.0.0.1:0 --grpc-listen 127.0.0.1:0\n" +
			"  monoplane up --runtime fake --nodes 100 --zones 3",
		Args: cobra.NoArgs,
	}
	var o upOptions
	o.add(cmd.Flags())
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := o.config(cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		kept := &notes{cfg: &cfg, settings: readSettings(cmd.Flags()), chosen: o.clusterCIDR == ""}
		return up(cmd.Context(), cfg, kept, cmd.OutOrStdout())
	}
	return cmd
}

// example returns commands that show that a runtime runs pods.
func example(r monoplane.Runtime) string {
	if n, ok := r.(*ocinode.Runtime); ok && n.CNI() != nil { // its Services lead nowhere by themselves
		return "  kubectl run web --image=nginx\n  kubectl get pods -o wide -w\n"
	}
	switch r {
	case monoplane.HostRuntime():
		return "  kubectl run hello --image=host --command -- sh -c 'while date; do sleep 1; done'\n" +
			"  kubectl logs -f hello\n"
	default:
		return "  kubectl create deployment web --image=nginx\n" +
			"  kubectl expose deployment web --type=NodePort --port=80\n  kubectl get pods,services -w\n"
	}
}

// runtimeName says what runs the pods.
func runtimeName(r monoplane.Runtime) string {
	if _, is := r.(*ocinode.Runtime); is {
		return "oci: containers of images, and of image \"host\""
	}
	switch {
	case r == monoplane.HostRuntime():
		return "host: image \"host\" only"
	case r.Simulated():
		return "fake: nothing is run"
	default:
		return "what listens at --runtime-endpoint"
	}
}

// greetNetwork says what a user needs to know of the pods' network, if they have one of their own.
func greetNetwork(w io.Writer, cfg monoplane.Config) {
	if r, ok := cfg.Runtime.(*ocinode.Runtime); ok && r.CNI() != nil {
		fmt.Fprintf(w, "  pods        connected by CNI (%s); Services, names and NetworkPolicies are not Monoplane's\n",
			r.CNI().ConfDir)
	}
	if n, ok := cfg.Runtime.(monoplane.Networked); !ok || !n.HasNetwork() {
		return
	}
	fmt.Fprintf(w, "  pods        %s\n", cfg.ClusterCIDR)
	fmt.Fprintf(w, "  node ports  %s\n", hostinfo.Addresses()[0])
	if r, ok := cfg.Runtime.(*ocinode.Runtime); ok && os.Geteuid() == 0 && r.NotForwarded() != "" {
		fmt.Fprintf(w, "  way out     this process (%s): pods cannot ping what is outside\n", r.NotForwarded())
	}
	if uid := os.Geteuid(); uid != 0 {
		fmt.Fprintf(w, "  user        %d, not root: pods can neither ping what is outside nor have privileged ports\n",
			uid)
	}
}

func greet(w io.Writer, c *monoplane.Cluster, cfg monoplane.Config, took time.Duration) {
	fmt.Fprintf(w, "Monoplane is ready after %d ms.\n", took.Milliseconds())
	fmt.Fprintf(w, "  REST        https://%s\n", c.Address())
	fmt.Fprintf(w, "  gRPC        %s\n", c.GRPCAddress())
	http, https := c.IngressAddresses()
	if http != "" {
		fmt.Fprintf(w, "  Ingress     http://%s\n", http)
	}
	if https != "" {
		fmt.Fprintf(w, "  Ingress     https://%s\n", https)
	}
	fmt.Fprintf(w, "  kubeconfig  %s\n", c.Kubeconfig())
	fmt.Fprintf(w, "  runtime     %s\n", runtimeName(cfg.Runtime))
	greetNetwork(w, cfg)
	fmt.Fprintln(w)
	fmt.Fprintf(w, "Try, in another terminal:\n  export KUBECONFIG=%s\n", c.Kubeconfig())
	fmt.Fprintf(w, "%s\n", example(cfg.Runtime))
	fmt.Fprintln(w, "Ctrl-C stops the pods and the server.")
}

// greetRefused says that the API serves but the node is another machine's, and what can be done.
func greetRefused(w io.Writer, c *monoplane.Cluster) {
	nodes := strings.Join(c.RefusedNodes(), " ")
	fmt.Fprintln(w, "Monoplane serves the API, but runs no pods.")
	fmt.Fprintf(w, "  REST        https://%s\n", c.Address())
	fmt.Fprintf(w, "  gRPC        %s\n", c.GRPCAddress())
	fmt.Fprintf(w, "  kubeconfig  %s\n\n", c.Kubeconfig())
	fmt.Fprintf(w, "%v.\n\n", c.Refused())
	fmt.Fprintln(w, "Nothing is started or stopped on it, so that no pod runs twice. Choose:")
	fmt.Fprintln(w,
		"  The original goes on, or may come back: use this one to look at the data only, and stop it with Ctrl-C.")
	fmt.Fprintf(w, "  The original is dead with all its pods: stop this one, then: monoplane up --%s (with its other "+
		"flags)\n", confirmation)
	fmt.Fprintf(w,
		"  The pods are not wanted here: kubectl delete node %s, wait until they are gone, then start again.\n\n", nodes)
	fmt.Fprintln(w, "Ctrl-C stops the server.")
}
