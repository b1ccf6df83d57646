package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"monoplane.dev"
	"monoplane.dev/nodeagent/eviction"
	"monoplane.dev/nodeagent/gc"
	"monoplane.dev/nodeagent/pullrecord"
	"monoplane.dev/nodeagent/shutdown"
)

// machineOptions are the flags about the machine that pods run on.
type machineOptions struct {
	manifestPath   string
	manifestURL    string
	manifestHeader map[string]string

	systemReserved, kubeReserved map[string]string
	maxPods, podsPerCore         int
	podMaxPIDs                   int64
	unsafeSysctls                []string

	evictionHard, evictionSoft, softGrace, minimumReclaim []string
	evictionMaxGrace                                      int
	pressureTransition                                    time.Duration
	images                                                gc.Policy
	credentials                                           pullrecord.Policy
	memoryQoS, seccompDefault                             bool

	shutdownGrace, shutdownCritical time.Duration
}

func (o *machineOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.manifestPath, "pod-manifest-path", "",
		"directory with manifests of static pods, or one manifest (default: DATA-DIR/nodes/NAME/manifests)")
	flags.StringVar(&o.manifestURL, "manifest-url", "",
		"URL of a manifest with static pods, a Pod or a PodList; it is asked every 20 s")
	flags.StringToStringVar(&o.manifestHeader, "manifest-url-header", nil,
		"headers for the requests to --manifest-url, such as Authorization=...")
	flags.StringToStringVar(&o.systemReserved, "system-reserved", nil,
		"what pods may not use, such as cpu=500m,memory=1Gi, because the system needs it")
	flags.StringToStringVar(&o.kubeReserved, "kube-reserved", nil,
		"what pods may not use because this program and the container runtime need it")
	flags.IntVar(&o.maxPods, "max-pods", 110, "how many pods the node takes")
	flags.IntVar(&o.podsPerCore, "pods-per-core", 0, "how many pods the node takes for each cpu; 0 for any number")
	flags.Int64Var(&o.podMaxPIDs, "pod-max-pids", -1,
		"how many processes and threads each pod may have; -1 for any number")
	flags.StringSliceVar(&o.unsafeSysctls, "allowed-unsafe-sysctls", nil, "kernel parameters that pods may set "+
		"beyond the safe ones: names, or what names begin with and an asterisk, of kernel.shm*, kernel.msg*, kernel.sem, "+
		"fs.mqueue.* and net.*")
	flags.StringSliceVar(&o.evictionHard, "eviction-hard", nil, "pods are evicted at once when less is left, such as "+
		"memory.available<200Mi,nodefs.available<5%; 0 switches one off (default: "+defaultHard()+")")
	flags.StringSliceVar(&o.evictionSoft, "eviction-soft", nil,
		"pods are evicted when less is left for the time of --eviction-soft-grace-period")
	flags.StringSliceVar(&o.softGrace, "eviction-soft-grace-period", nil,
		"how long, for each signal of --eviction-soft, such as memory.available=90s")
	flags.IntVar(&o.evictionMaxGrace, "eviction-max-pod-grace-period", 0,
		"the most seconds that a pod gets to stop at a soft threshold")
	flags.StringSliceVar(&o.minimumReclaim, "eviction-minimum-reclaim", nil,
		"how much more must become free before pods are no longer evicted, such as memory.available=100Mi")
	flags.DurationVar(&o.pressureTransition, "eviction-pressure-transition-period", eviction.DefaultTransition,
		"how long the node says that it is under pressure after the last time it was")
	flags.IntVar(&o.images.High, "image-gc-high-threshold", 85,
		"percentage of the images' disk from which images that nobody uses are removed; 100 for never")
	flags.IntVar(&o.images.Low, "image-gc-low-threshold", 80, "percentage that is aimed at then")
	flags.DurationVar(&o.images.MinAge, "minimum-image-ttl-duration", 2*time.Minute,
		"how long an image stays after it came or was used last")
	flags.DurationVar(&o.images.MaxAge, "maximum-image-ttl-duration", 0,
		"how long an image that nobody uses may stay; 0 for ever")
	flags.StringVar(&o.credentials.Verification, "image-pull-credentials-verification-policy",
		pullrecord.NeverVerifyPreloadedImages, "for which images on the node a pod must have credentials if they came "+
			"with some: NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages or AlwaysVerify")
	flags.StringSliceVar(&o.credentials.Allowed, "preloaded-images-verification-allowlist", nil,
		"repositories, or with /* all below, for NeverVerifyAllowlistedImages")
	flags.BoolVar(&o.memoryQoS, "memory-qos", false,
		"reserve the memory that containers request, and slow them down before they reach their limit; needs cgroup2")
	flags.BoolVar(&o.seccompDefault, "seccomp-default", false,
		"give containers that name no seccomp profile the runtime's, as RuntimeDefault does, in place of none")
	flags.DurationVar(&o.shutdownGrace, "shutdown-grace-period", 0, "SIGTERM means that the machine goes down: its pods "+
		"are ended for good within this time, by priority. Without it SIGTERM leaves them running")
	flags.DurationVar(&o.shutdownCritical, "shutdown-grace-period-critical-pods", 0,
		"the part of --shutdown-grace-period, its end, that critical pods have")
}

// defaultHard words the default of --eviction-hard.
func defaultHard() string {
	var out []string
	defaults := eviction.DefaultHard()
	for _, s := range []eviction.Signal{eviction.Memory, eviction.NodeFS, eviction.NodeFSInodes, eviction.ImageFS,
		eviction.ImageFSInodes} {
		out = append(out, string(s)+"<"+defaults[string(s)])
	}
	return strings.Join(out, ",")
}

// pairs reads settings such as memory.available<100Mi, as kubelet writes them, or memory.available=100Mi. Nil for
// none.
func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, text := range list {
		name, value, ok := strings.Cut(text, "<")
		if !ok {
			name, value, ok = strings.Cut(text, "=")
		}
		if !ok {
			return nil, fmt.Errorf("--%s: %q is not of the form memory.available<100Mi", flag, text)
		}
		out[name] = value
	}
	return out, nil
}

func (o *machineOptions) config() (monoplane.MachineConfig, error) {
	m := monoplane.MachineConfig{
		ManifestURL: o.manifestURL, SystemReserved: o.systemReserved, KubeReserved: o.kubeReserved,
		PodsPerCore: o.podsPerCore, ImageGC: o.images, MemoryQoS: o.memoryQoS, PullCredentials: o.credentials,
		SeccompDefault: o.seccompDefault, AllowedUnsafeSysctls: o.unsafeSysctls,
	}
	if o.credentials.Verification == pullrecord.NeverVerifyPreloadedImages {
		m.PullCredentials.Verification = ""
	}
	if o.maxPods != 110 {
		m.MaxPods = o.maxPods
	}
	if o.podMaxPIDs > 0 {
		m.PodMaxPIDs = o.podMaxPIDs
	}
	if o.images == (gc.Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}) {
		m.ImageGC = gc.Policy{}
	}
	if o.manifestPath != "" {
		path, err := filepath.Abs(o.manifestPath)
		if err != nil {
			return m, err
		}
		m.ManifestPath = path
	}
	for k, v := range o.manifestHeader {
		if m.ManifestHeader == nil {
			m.ManifestHeader = http.Header{}
		}
		m.ManifestHeader.Set(k, v)
	}
	var err error
	if m.Shutdown, err = shutdown.Split(o.shutdownGrace, o.shutdownCritical); err != nil {
		return m, fmt.Errorf("--shutdown-grace-period: %w", err)
	}
	m.Eviction.MaxGrace = time.Duration(o.evictionMaxGrace) * time.Second
	if o.pressureTransition != eviction.DefaultTransition {
		m.Eviction.Transition = o.pressureTransition
	}
	for _, of := range []struct {
		flag string
		list []string
		to   *map[string]string
	}{
		{"eviction-hard", o.evictionHard, &m.Eviction.Hard}, {"eviction-soft", o.evictionSoft, &m.Eviction.Soft},
		{"eviction-soft-grace-period", o.softGrace, &m.Eviction.SoftGrace},
		{"eviction-minimum-reclaim", o.minimumReclaim, &m.Eviction.MinimumReclaim},
	} {
		if *of.to, err = pairs(of.flag, of.list); err != nil {
			return m, err
		}
	}
	return m, nil
}
