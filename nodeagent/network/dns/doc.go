// Package dns answers names of the cluster, and forwards all others.
//
// A Zone has the records of Services and of their endpoints, as the Kubernetes DNS specification says them; it is told
// of Services by Set and Delete, and of namespaces by SetNamespace. Whoever calls Set after traffic to the Service is
// carried makes sure that nobody sees the name of a Service before it can be reached. A Server answers messages over
// UDP and TCP on sockets that it is given: from the Zone, or, for other names, with what the resolvers of the machine
// say, which it keeps for a while.
//
// Records, for cluster domain cluster.local:
//
//	SERVICE.NS.svc               A, AAAA  cluster IPs; of a headless Service the addresses of its ready endpoints;
//	                             CNAME    the external name
//	_PORT._PROTO.SERVICE.NS.svc  SRV      the port at the Service's name; of a headless one the ports of each endpoint
//	HOST.SERVICE.NS.svc          A, AAAA  an endpoint of a headless Service; HOST is its hostname, or else its address
//	                             with dashes
//	1-2-3-4.NS.pod               A, AAAA  the address that the name says, in a namespace that there is
//	in-addr.arpa, ip6.arpa       PTR      for cluster IPs and for endpoints of headless Services
//	dns-version                  TXT      the version of the specification
//
// Guarantees: any bytes may come in; memory and goroutines are bounded, whoever asks; a name below the cluster domain
// is never asked of others; an answer to UDP is never larger than the asker said it takes. Nothing is answered from
// before the first Services are known: askers get SERVFAIL, and try again.
package dns
