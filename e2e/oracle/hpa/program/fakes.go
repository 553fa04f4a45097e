package main

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
)

// informer is an informer that the driver of a scenario feeds. The controller uses no other methods.
type informer struct {
	cache.SharedIndexInformer
	store   cache.Indexer
	handler cache.ResourceEventHandler
}

func newInformer() *informer { return &informer{store: podIndexer()} }

func (i *informer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	i.handler = handler
	return nil, nil
}

func (i *informer) HasSynced() bool { return true }

type hpaInformer struct{ *informer }

func (i hpaInformer) Informer() cache.SharedIndexInformer { return i.informer }

func (i hpaInformer) Lister() autoscalinglisters.HorizontalPodAutoscalerLister {
	return autoscalinglisters.NewHorizontalPodAutoscalerLister(i.store)
}

type podInformer struct{ *informer }

func (i podInformer) Informer() cache.SharedIndexInformer { return i.informer }

func (i podInformer) Lister() corelisters.PodLister { return corelisters.NewPodLister(i.store) }

// mapper maps every kind to one resource.
type mapper struct{ meta.RESTMapper }

func (mapper) RESTMappings(kind schema.GroupKind, _ ...string) ([]*meta.RESTMapping, error) {
	return []*meta.RESTMapping{{Resource: schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: "targets"}}}, nil
}

// target is the scale subresource. It counts the reads: the controller reads it once per reconcile.
type target struct {
	scale.ScaleInterface
	spec, status int32
	failReads    bool
	failWrites   bool
	reads        int
}

func (t *target) Scales(string) scale.ScaleInterface { return t }

func (t *target) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	t.reads++
	if t.failReads {
		return nil, errRefused
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: t.spec},
		Status:     autoscalingv1.ScaleStatus{Replicas: t.status, Selector: labelKey + "=" + labelValue},
	}, nil
}

func (t *target) Update(_ context.Context, _ schema.GroupResource, wanted *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	if t.failWrites {
		return nil, errRefused
	}
	t.spec = wanted.Spec.Replicas
	return wanted, nil
}

// HorizontalPodAutoscalers makes the informer the client that stores the status, too.
func (i hpaInformer) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return statusWriter{informer: i}
}

// read returns a copy of the stored autoscaler, or nil if there is none.
func (i hpaInformer) read() *autoscaling.HorizontalPodAutoscaler {
	found, exists, _ := i.store.GetByKey(namespace + "/" + name)
	if !exists {
		return nil
	}
	return found.(*autoscaling.HorizontalPodAutoscaler).DeepCopy()
}

// statusWriter stores the status that the controller writes.
type statusWriter struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	informer hpaInformer
}

func (w statusWriter) UpdateStatus(_ context.Context, hpa *autoscaling.HorizontalPodAutoscaler, _ metav1.UpdateOptions) (*autoscaling.HorizontalPodAutoscaler, error) {
	stored := w.informer.read()
	stored.Status = *hpa.Status.DeepCopy()
	return stored, w.informer.store.Update(stored)
}

// noEvents drops the controller's events.
type noEvents struct{ coreclient.EventInterface }

func (e noEvents) Events(string) coreclient.EventInterface { return e }

func (noEvents) CreateWithEventNamespace(event *v1.Event) (*v1.Event, error) { return event, nil }

func (noEvents) UpdateWithEventNamespace(event *v1.Event) (*v1.Event, error) { return event, nil }

func (noEvents) PatchWithEventNamespace(event *v1.Event, _ []byte) (*v1.Event, error) {
	return event, nil
}

// logSink keeps the reason of a rescale. The controller also writes it into an event, but limits the rate of events.
type logSink struct{ reason string }

func (*logSink) Init(logr.RuntimeInfo) {}

func (*logSink) Enabled(level int) bool { return level == 0 }

func (*logSink) Error(error, string, ...any) {}

func (s *logSink) WithValues(...any) logr.LogSink { return s }

func (s *logSink) WithName(string) logr.LogSink { return s }

func (s *logSink) Info(_ int, message string, pairs ...any) {
	for i := 0; message == "Successfully rescaled" && i+1 < len(pairs); i += 2 {
		if pairs[i] == "reason" {
			s.reason, _ = pairs[i+1].(string)
		}
	}
}
