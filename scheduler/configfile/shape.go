package configfile

import "go.yaml.in/yaml/v3"

const (
	apiVersion = "kubescheduler.config.k8s.io/v1"
	kind       = "KubeSchedulerConfiguration"
)

// document is the file. What it shares with Kubernetes has Kubernetes' names.
type document struct {
	APIVersion                string           `json:"apiVersion"`
	Kind                      string           `json:"kind"`
	Parallelism               *int32           `json:"parallelism"`
	LeaderElection            leaderElection   `json:"leaderElection"`
	ClientConnection          clientConnection `json:"clientConnection"`
	EnableProfiling           *bool            `json:"enableProfiling"`
	EnableContentionProfiling *bool            `json:"enableContentionProfiling"`
	PercentageOfNodesToScore  *int32           `json:"percentageOfNodesToScore"`
	PodInitialBackoffSeconds  *int64           `json:"podInitialBackoffSeconds"`
	PodMaxBackoffSeconds      *int64           `json:"podMaxBackoffSeconds"`
	Profiles                  []profileShape   `json:"profiles"`
	Extenders                 []yaml.Node      `json:"extenders"`
	DelayCacheUntilActive     *bool            `json:"delayCacheUntilActive"`
	DisablePreemption         bool             `json:"disablePreemption"`
}

type leaderElection struct {
	LeaderElect       *bool   `json:"leaderElect"`
	LeaseDuration     *string `json:"leaseDuration"`
	RenewDeadline     *string `json:"renewDeadline"`
	RetryPeriod       *string `json:"retryPeriod"`
	ResourceLock      *string `json:"resourceLock"`
	ResourceName      *string `json:"resourceName"`
	ResourceNamespace *string `json:"resourceNamespace"`
}

type clientConnection struct {
	Kubeconfig         *string  `json:"kubeconfig"`
	AcceptContentTypes *string  `json:"acceptContentTypes"`
	ContentType        *string  `json:"contentType"`
	QPS                *float64 `json:"qps"`
	Burst              *int32   `json:"burst"`
}

type profileShape struct {
	SchedulerName            *string        `json:"schedulerName"`
	PercentageOfNodesToScore *int32         `json:"percentageOfNodesToScore"`
	Plugins                  pluginsShape   `json:"plugins"`
	PluginConfig             []pluginConfig `json:"pluginConfig"`
}

type pluginsShape struct {
	MultiPoint        pluginSet `json:"multiPoint"`
	PreEnqueue        pluginSet `json:"preEnqueue"`
	QueueSort         pluginSet `json:"queueSort"`
	PreFilter         pluginSet `json:"preFilter"`
	Filter            pluginSet `json:"filter"`
	PostFilter        pluginSet `json:"postFilter"`
	PreScore          pluginSet `json:"preScore"`
	Score             pluginSet `json:"score"`
	Reserve           pluginSet `json:"reserve"`
	Permit            pluginSet `json:"permit"`
	PreBind           pluginSet `json:"preBind"`
	Bind              pluginSet `json:"bind"`
	PostBind          pluginSet `json:"postBind"`
	PlacementGenerate pluginSet `json:"placementGenerate"`
	PlacementScore    pluginSet `json:"placementScore"`
}

type pluginSet struct {
	Enabled  []pluginEntry `json:"enabled"`
	Disabled []pluginEntry `json:"disabled"`
}

type pluginEntry struct {
	Name   string `json:"name"`
	Weight int32  `json:"weight"`
}

type pluginConfig struct {
	Name string    `json:"name"`
	Args yaml.Node `json:"args"`
}
