package configfile

import "slices"

// inert reports what is set but has no effect here. The defaults that tools write are accepted, and leaderElect:
// false.
func (r *report) inert(d *document) {
	const alone = "each cluster has one scheduler"
	l := &d.LeaderElection
	noEffect(r, "leaderElection.leaderElect", l.LeaderElect, alone, false)
	noEffect(r, "leaderElection.leaseDuration", l.LeaseDuration, alone, "15s")
	noEffect(r, "leaderElection.renewDeadline", l.RenewDeadline, alone, "10s")
	noEffect(r, "leaderElection.retryPeriod", l.RetryPeriod, alone, "2s")
	noEffect(r, "leaderElection.resourceLock", l.ResourceLock, alone, "leases")
	noEffect(r, "leaderElection.resourceName", l.ResourceName, alone, "kube-scheduler")
	noEffect(r, "leaderElection.resourceNamespace", l.ResourceNamespace, alone, "kube-system")

	const inside = "the scheduler runs inside Monoplane and needs no connection of its own"
	c := &d.ClientConnection
	noEffect(r, "clientConnection.kubeconfig", c.Kubeconfig, inside, "")
	noEffect(r, "clientConnection.acceptContentTypes", c.AcceptContentTypes, inside, "")
	noEffect(r, "clientConnection.contentType", c.ContentType, inside, "", "application/vnd.kubernetes.protobuf")
	noEffect(r, "clientConnection.qps", c.QPS, inside, 50)
	noEffect(r, "clientConnection.burst", c.Burst, inside, 100)

	// Off is what it is, on is what tools write.
	noEffect(r, "enableProfiling", d.EnableProfiling, "", true, false)
	noEffect(r, "enableContentionProfiling", d.EnableContentionProfiling, "", true, false)
	noEffect(r, "delayCacheUntilActive", d.DelayCacheUntilActive, alone, false)
	if len(d.Extenders) > 0 {
		r.Add("extenders", "have no effect here: extend the scheduler with plugins in Go (monoplane.Config.Scheduler)")
	}
}

func noEffect[T comparable](r *report, path string, is *T, why string, accepted ...T) {
	if is != nil && !slices.Contains(accepted, *is) {
		r.Add(path, "%v has no effect here: %s; leave it out", *is, why)
	}
}
