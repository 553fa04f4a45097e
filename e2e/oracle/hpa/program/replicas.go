package main

import (
	"context"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
)

// replicaCase is one call of the replica calculator.
type replicaCase struct {
	Call              string             `json:"call"`
	SpecReplicas      int32              `json:"specReplicas"`
	StatusReplicas    int32              `json:"statusReplicas"`
	Target            int64              `json:"target"`
	Resource          string             `json:"resource"`
	Container         string             `json:"container"`
	ToleranceDown     float64            `json:"toleranceDown"`
	ToleranceUp       float64            `json:"toleranceUp"`
	CPUInitialization float64            `json:"cpuInitialization"`
	ReadinessDelay    float64            `json:"readinessDelay"`
	Pods              []pod              `json:"pods"`
	Readings          map[string]reading `json:"readings"`
}

// replicaResult is the calculator's answer.
type replicaResult struct {
	Replicas    int32  `json:"replicas"`
	Usage       int64  `json:"usage"`
	Utilization *int32 `json:"utilization,omitempty"`
	Error       string `json:"error,omitempty"`
}

// metricName is the name of the metric of calls that are not about a resource.
const metricName = "metric"

// tolerances returns the calculator's tolerances, whose fields no exported function can set.
func tolerances(down, up float64) podautoscaler.Tolerances {
	made := podautoscaler.Tolerances{}
	for name, value := range map[string]float64{"scaleDown": down, "scaleUp": up} {
		field := reflect.ValueOf(&made).Elem().FieldByName(name)
		*(*float64)(unsafe.Pointer(field.UnsafeAddr())) = value
	}
	return made
}

// podIndexer returns a store of pods for a lister.
func podIndexer() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// run asks the calculator.
func (c replicaCase) run() (result replicaResult) {
	now, ctx := time.Now(), context.Background()
	store := podIndexer()
	for _, one := range c.Pods {
		_ = store.Add(one.object(namespace, now))
	}
	calculator := podautoscaler.NewReplicaCalculator(
		&readings{c.Readings, now}, corelisters.NewPodLister(store), seconds(c.CPUInitialization), seconds(c.ReadinessDelay),
	)
	selector := labels.SelectorFromSet(labels.Set{labelKey: labelValue})
	allowed := tolerances(c.ToleranceDown, c.ToleranceUp)
	object := &autoscaling.CrossVersionObjectReference{Kind: "Service", Name: "object"}
	var err error
	switch c.Call {
	case "utilization":
		var percent int32
		result.Replicas, percent, result.Usage, _, err = calculator.GetResourceReplicas(
			ctx, c.SpecReplicas, int32(c.Target), v1.ResourceName(c.Resource), allowed, namespace, selector, c.Container)
		result.Utilization = &percent
	case "resource":
		result.Replicas, result.Usage, _, err = calculator.GetRawResourceReplicas(
			ctx, c.SpecReplicas, c.Target, v1.ResourceName(c.Resource), allowed, namespace, selector, c.Container)
	case "pods":
		result.Replicas, result.Usage, _, err = calculator.GetMetricReplicas(
			c.SpecReplicas, c.Target, metricName, allowed, namespace, selector, labels.Everything())
	case "object":
		result.Replicas, result.Usage, _, err = calculator.GetObjectMetricReplicas(
			c.SpecReplicas, c.Target, metricName, allowed, namespace, object, selector, labels.Everything())
	case "objectAverage":
		result.Replicas, result.Usage, _, err = calculator.GetObjectPerPodMetricReplicas(
			c.StatusReplicas, c.Target, metricName, allowed, namespace, object, labels.Everything())
	case "external":
		result.Replicas, result.Usage, _, err = calculator.GetExternalMetricReplicas(
			c.SpecReplicas, c.Target, metricName, allowed, namespace, &metav1.LabelSelector{}, selector)
	case "externalAverage":
		result.Replicas, result.Usage, _, err = calculator.GetExternalPerPodMetricReplicas(
			c.StatusReplicas, c.Target, metricName, allowed, namespace, &metav1.LabelSelector{})
	default:
		err = fmt.Errorf("unknown call %q", c.Call)
	}
	if err != nil {
		return replicaResult{Error: err.Error()}
	}
	return result
}
