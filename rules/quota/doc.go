// Package quota measures what objects take of the ResourceQuotas of their namespace: the server goes by it when it
// lets somebody create or enlarge an object, and the controller of quotas when it writes down what is used.
//
// A quota counts an object when it limits a resource that objects of that kind have and the object is in all of its
// scopes. Pods are counted by what they request and limit, as long as they have not ended and are not overdue in
// going; Services by their type and node ports; claims by size and class; and every kind in a namespace by number, as
// "count/RESOURCE.GROUP". Events are never counted.
//
// It guarantees the usage of Kubernetes: test/oracle compares it over random objects and quotas. It knows no store and
// no clock, and never changes an object.
package quota
